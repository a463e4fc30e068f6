//! A time limit for each request: until the whole answer is there, retries included.
//!
//! What is asked for as a stream (`watch`, `follow`) has the limit for the beginning of its answer only.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use tower::{BoxError, Layer, Service};

/// How long the API server has for the answer to one request.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// The API server did not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", DEADLINE.as_secs())]
pub struct TimedOut;

/// Puts [`Deadline`] around a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner }
    }
}

/// A service whose every answer comes within [`DEADLINE`], or is an error ([`TimedOut`]).
#[derive(Clone, Debug)]
pub(crate) struct Deadline<S> {
    inner: S,
}

type Answer<B> = Response<Either<Full<Bytes>, B>>;

impl<S, A, B> Service<Request<A>> for Deadline<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let is_stream = is_stream(request.uri().query().unwrap_or_default());
        let answer = self.inner.call(request);
        let whole = async move {
            let (head, body) = answer.await.map_err(Into::into)?.into_parts();
            if is_stream || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Response::from_parts(head, Either::Right(body)));
            }
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            Ok(Response::from_parts(head, Either::Left(Full::new(body))))
        };
        Box::pin(async move {
            match tokio::time::timeout(DEADLINE, whole).await {
                Ok(answer) => answer,
                Err(_) => Err(BoxError::from(TimedOut)),
            }
        })
    }
}

/// Whether the answer has no end of its own.
fn is_stream(query: &str) -> bool {
    query.split('&').any(|each| matches!(each, "watch=true" | "watch=1" | "follow=true"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use kube::{Api, Client};
    use tower::service_fn;

    use super::*;

    /// A client whose API server answers with what `serve` returns.
    fn client<F, B>(serve: fn(Request<Body>) -> F) -> Client
    where
        F: Future<Output = Result<Response<B>, BoxError>> + Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Client::new(DeadlineLayer.layer(service_fn(serve)), "default")
    }

    async fn silent(_: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        std::future::pending().await
    }

    /// Its answer begins and never ends.
    async fn endless(_: Request<Body>) -> Result<Response<Unending>, BoxError> {
        Ok(Response::new(Unending))
    }

    struct Unending;

    impl http_body::Body for Unending {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
            Poll::Pending
        }
    }

    fn is_late(error: &kube::Error) -> bool {
        matches!(error, kube::Error::Service(source) if source.is::<TimedOut>())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_answered_ends_and_so_does_one_whose_answer_does_not() {
        let begun = tokio::time::Instant::now();
        let pods: Api<Pod> = Api::default_namespaced(client(silent));
        assert!(is_late(&pods.get("a").await.unwrap_err()));
        assert_eq!(begun.elapsed().as_secs(), DEADLINE.as_secs());
        let pods: Api<Pod> = Api::default_namespaced(client(endless));
        assert!(is_late(&pods.get("a").await.unwrap_err()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_be_silent_once_it_was_answered() {
        let pods: Api<Pod> = Api::default_namespaced(client(silent));
        assert!(pods.watch(&Default::default(), "0").await.is_err_and(|error| is_late(&error)));
        let pods: Api<Pod> = Api::default_namespaced(client(endless));
        assert!(pods.watch(&Default::default(), "0").await.is_ok());
    }
}
