"""What Prometheus reads of an installation: metrics, rules, dashboards."""
