//! What the client may log.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Where `kube` logs answers that it cannot read, with their whole text: up to 500 objects with everything that is written in
/// them, passwords in cloud-init data among it.
const TALKATIVE: &str = "kube_client::client";

/// Which opens a span for each reconciliation, of texts that no line of ours has.
const RUNTIME: &str = "kube_runtime";

/// What a program that asks the API server may log: everything but the text of answers. How much of that it does log is for
/// another filter to decide.
#[must_use]
pub fn discreet() -> Targets {
    Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_target(TALKATIVE, LevelFilter::OFF)
        .with_target(RUNTIME, LevelFilter::WARN)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;
    use k8s_openapi::api::core::v1::Pod;
    use kube::{Api, Client};
    use tower::{BoxError, service_fn};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is logged while a list cannot be read.
    async fn logged(filter: Targets) -> String {
        let log = Log::default();
        let writer = log.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_filter(filter);
        // A callsite that another test meets first is not cached as switched off: every thread has a subscriber.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let answer = r#"{"items": [{"spec": {"containers": "PASSWORD"}}]}"#;
        let serve = service_fn(move |_| async move {
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(answer.as_bytes()))))
        });
        let pods: Api<Pod> = Api::default_namespaced(Client::new(serve, "default"));
        assert!(pods.list(&Default::default()).await.is_err());
        tracing::info!("the program's own");
        drop(guard);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_read_is_not_logged() {
        let everything = logged(Targets::new().with_default(LevelFilter::INFO)).await;
        assert!(everything.contains("PASSWORD"), "the client does not log answers any more: {everything}");
        let log = logged(discreet()).await;
        assert!(!log.contains("PASSWORD") && log.contains("the program's own"), "{log}");
    }
}
