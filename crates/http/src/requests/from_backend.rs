//! Bodies of responses of backends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::BodyError;
use super::pool::Checkout;
use crate::settings::Upstream;

/// Body of a response, and the connection that it comes from.
pub struct FromBackend {
    body: Incoming,
    /// Returns to the pool at the end of the body.
    connection: Option<Checkout>,
    body_timeout: Duration,
    fail_timeout: Duration,
    /// Time at which the backend has paused, if it is waited for.
    paused: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl FromBackend {
    /// Wraps `body`, which `connection` brings.
    pub fn new(body: Incoming, connection: Checkout, settings: &Upstream) -> Self {
        let mut this = Self {
            body,
            connection: Some(connection),
            body_timeout: settings.body_timeout,
            fail_timeout: settings.fail_timeout,
            paused: None,
            timer: None,
        };
        this.settle();
        this
    }

    /// Returns the next part. A backend that breaks off the response, or pauses for too long, is
    /// told of.
    pub fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let outcome = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(outcome) => outcome.map(|outcome| outcome.map_err(BodyError::from)),
            Poll::Pending => {
                ready!(self.poll_timer(context));
                Some(Err("the backend has stopped sending the body".into()))
            }
        };
        self.paused = None;
        match &outcome {
            Some(Ok(_)) => self.settle(),
            Some(Err(_)) => self.break_off(),
            None => self.give_back(),
        }
        Poll::Ready(outcome)
    }

    /// Returns true if nothing follows.
    pub fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Returns the length, as far as it is known.
    pub fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Ready when the backend has paused for too long. The timer is moved only when it fires.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let paused = *self.paused.get_or_insert_with(Instant::now);
        let end = paused + self.body_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        loop {
            ready!(timer.as_mut().poll(context));
            if Instant::now() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
    }

    /// Returns the connection to its pool if the body has ended.
    fn settle(&mut self) {
        if self.body.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.backend().has_answered();
            connection.give_back();
        }
    }

    fn break_off(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.backend().broke_off(self.fail_timeout);
        }
    }
}
