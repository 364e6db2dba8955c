//! Calls for the controllers' tests.

use std::time::Duration;

use super::{Controller, Mark, Sample, Sent};
use crate::engine::outcome::Outcome;

/// A call that was sent at 0 s under a limit in full use, and ended after 1 s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) sent_at: f64,
    pub(crate) first_byte_at: Option<f64>,
    pub(crate) ended_at: f64,
    pub(crate) in_flight: u32,
    pub(crate) is_saturated: bool,
    pub(crate) further_chunks: u32,
    pub(crate) retry_after: Option<f64>,
    pub(crate) outcome: Outcome,
}

pub(crate) fn call(outcome: Outcome) -> Call {
    Call {
        sent_at: 0.0,
        first_byte_at: (outcome == Outcome::Success).then_some(0.5),
        ended_at: 1.0,
        in_flight: 1,
        is_saturated: true,
        further_chunks: 10,
        retry_after: None,
        outcome,
    }
}

impl Call {
    pub(crate) fn at(self, sent_at: f64, ended_at: f64) -> Self {
        let first_byte_at = self.first_byte_at.map(|_| f64::midpoint(sent_at, ended_at));
        Self { sent_at, first_byte_at, ended_at, ..self }
    }

    pub(crate) fn sent(&self) -> Sent {
        Sent {
            at: Duration::from_secs_f64(self.sent_at),
            in_flight: self.in_flight,
            is_saturated: self.is_saturated,
            request_bytes: Some(4000),
            asks_for_stream: Some(true),
        }
    }

    pub(crate) fn sample(&self) -> Sample {
        Sample {
            ended_at: Duration::from_secs_f64(self.ended_at),
            sent: self.sent(),
            mark: Mark::default(),
            first_byte_at: self.first_byte_at.map(Duration::from_secs_f64),
            further_chunks: self.further_chunks,
            answer_bytes: 40 * (self.further_chunks + 1),
            outcome: self.outcome,
            retry_after: self.retry_after.map(Duration::from_secs_f64),
            in_flight: self.in_flight,
        }
    }

    /// The whole call, hook by hook.
    pub(crate) fn run(&self, controller: &mut dyn Controller) {
        let mark = controller.on_sent(&self.sent());
        if let Some(at) = self.first_byte_at {
            controller.on_first_byte(Duration::from_secs_f64(at), &self.sent(), mark);
        }
        controller.on_end(&Sample { mark, ..self.sample() });
    }
}
