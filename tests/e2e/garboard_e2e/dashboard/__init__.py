"""The page of `kubectl garboard dashboard` in Chromium, with an API server that is played."""
