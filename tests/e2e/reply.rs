//! What the test server answers, step by step.

#![allow(dead_code, reason = "shared by test binaries that each use a part")]

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame};
use tokio::sync::Semaphore;

use super::server::Open;

/// A head, and the steps of a body.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    pub(crate) steps: VecDeque<Step>,
    /// The head waits for a gate.
    pub(crate) is_late: bool,
    ends_apart: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    /// Waits until the test opens a gate.
    Gate,
    /// Lets others run first.
    Yield,
    /// Breaks the connection, or the stream of an HTTP/2 connection.
    Reset,
    /// Stays open and silent.
    Hang,
}

impl Reply {
    pub(crate) fn ok() -> Self {
        Self::status(200)
    }

    pub(crate) fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::new(),
            steps: VecDeque::new(),
            is_late: false,
            ends_apart: false,
        }
    }

    /// A whole answer with its length.
    pub(crate) fn whole(status: u16, body: &'static str) -> Self {
        Self::status(status).header("content-length", &body.len().to_string()).data(body)
    }

    /// Server-sent events, the last of them `[DONE]`.
    pub(crate) fn events<'a>(events: impl IntoIterator<Item = &'a str>) -> Self {
        let mut reply = Self::ok().header("content-type", "text/event-stream");
        for event in events {
            reply = reply.data(format!("data: {event}\n\n"));
        }
        reply.data("data: [DONE]\n\n")
    }

    /// Two frames, then silence.
    pub(crate) fn endless() -> Self {
        Self::ok().data("one").step(Step::Yield).data("two").step(Step::Hang)
    }

    /// Not even a head, unless the test opens a gate.
    pub(crate) fn never() -> Self {
        Self { is_late: true, ..Self::ok() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("a header value");
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    pub(crate) fn data(self, data: impl Into<Bytes>) -> Self {
        self.step(Step::Data(data.into()))
    }

    pub(crate) fn gate(self) -> Self {
        self.step(Step::Gate)
    }

    pub(crate) fn reset(self) -> Self {
        self.step(Step::Reset)
    }

    /// Announced as HTTP/1 wants it.
    pub(crate) fn trailer(self, name: &'static str, value: &'static str) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, HeaderValue::from_static(value));
        self.header("trailer", name).step(Step::Trailers(trailers))
    }

    /// The end is not told along with the last data, nor an empty body at the head.
    pub(crate) fn ends_apart(self) -> Self {
        Self { ends_apart: true, ..self }
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push_back(step);
        self
    }

    pub(super) fn into_response(self, open: Open, gate: Arc<Semaphore>) -> Response<ScriptBody> {
        let Self { status, headers, steps, ends_apart, .. } = self;
        let body = ScriptBody { steps, ends_apart, open, gate, at_gate: None };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

pub(crate) struct ScriptBody {
    steps: VecDeque<Step>,
    ends_apart: bool,
    open: Open,
    gate: Arc<Semaphore>,
    at_gate: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl ScriptBody {
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let gate = &self.gate;
        let at_gate = self.at_gate.get_or_insert_with(|| {
            let gate = gate.clone();
            Box::pin(async move {
                if let Ok(permit) = gate.acquire_owned().await {
                    permit.forget();
                }
            })
        });
        ready!(at_gate.as_mut().poll(cx));
        self.at_gate = None;
        Poll::Ready(())
    }

    fn frame(&mut self, frame: Frame<Bytes>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.steps.is_empty() && !self.ends_apart {
            self.open.end();
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Body for ScriptBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            match self.steps.pop_front() {
                Some(Step::Data(data)) => return self.frame(Frame::data(data)),
                Some(Step::Trailers(trailers)) => return self.frame(Frame::trailers(trailers)),
                Some(Step::Gate) => {
                    if self.poll_gate(cx).is_pending() {
                        self.steps.push_front(Step::Gate);
                        return Poll::Pending;
                    }
                }
                Some(Step::Yield) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Step::Hang) => {
                    self.steps.push_front(Step::Hang);
                    return Poll::Pending;
                }
                Some(Step::Reset) => {
                    self.open.end();
                    return Poll::Ready(Some(Err(io::Error::other("reset by the script"))));
                }
                None => {
                    self.open.end();
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && !self.ends_apart
    }
}
