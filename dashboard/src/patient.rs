//! What ends a connection whose other end takes nothing, or sends nothing that was promised.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection whose writes end after a while in which nothing was taken. Reads may take for ever: a guest may be silent for hours.
#[derive(Debug)]
pub struct Writing<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Writing<S> {
    /// For so long.
    pub const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, end: None }
    }

    /// What a write comes to: nothing that was taken ends the waiting.
    fn judged<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.end = None;
            return outcome;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Writing<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Writing<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judged(context, outcome)
    }
}

/// Why the body of an answer ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection broke.
    #[error("the answer is cut off")]
    Broken(#[from] hyper::Error),
    /// Nothing more came.
    #[error("nothing more of the answer came in time")]
    Late,
}

/// The body of an answer, each part of which comes within a time.
#[derive(Debug)]
pub struct Coming {
    body: Incoming,
    patience: Duration,
    /// Runs while a part is waited for: a browser that reads slowly makes none late.
    end: Option<Pin<Box<Sleep>>>,
}

impl Coming {
    /// For so long for each part.
    #[must_use]
    pub const fn new(body: Incoming, patience: Duration) -> Self {
        Self { body, patience, end: None }
    }
}

impl Body for Coming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.end = None;
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
            }
            Poll::Pending => {
                let patience = self.patience;
                let end = self.end.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(end.as_mut().poll(context));
                Poll::Ready(Some(Err(BodyError::Late)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn who_takes_nothing_ends_a_connection_and_who_says_nothing_does_not() {
        let (mut browser, served) = tokio::io::duplex(1024);
        let mut served = Writing::new(served, Duration::from_millis(50));
        let silent = tokio::time::timeout(Duration::from_millis(200), served.read_u8()).await;
        assert!(silent.is_err(), "a read ended");
        let kind = served.write_all(&[0; 4096]).await.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::TimedOut);
        let mut taken = vec![0; 1024];
        browser.read_exact(&mut taken).await.unwrap();
        served.write_all(b"more").await.unwrap();
    }
}
