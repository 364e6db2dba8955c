//! What the upstream, and whoever is between here and there, is told of a call's deadline.

use std::time::Duration;

use http::header::HeaderName;
use http::{Extensions, HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::engine::time::Time;
use crate::limiter::clock;

/// The moment after which nobody wants the answer: in the extensions of each request that is sent for a call with a
/// deadline, while the limiter is on.
///
/// Services inside of the layer find it there, for a timeout of their own for instance; services beyond the network can be told
/// by a header, see [`InflightLimitLayer::deadline_header`](crate::InflightLimitLayer::deadline_header). It is the earlier
/// of the deadlines of the [`Call`](crate::Call) and of its [`Scope`](crate::Scope), as a moment and not as a time, so that it
/// does not grow old on its way.
///
/// ```
/// use std::time::Duration;
///
/// fn timeout(request: &http::Request<String>) -> Duration {
///     let deadline = request.extensions().get::<tower_inflight::Deadline>();
///     deadline.map_or(Duration::from_secs(120), |deadline| deadline.time_left())
/// }
/// # assert_eq!(timeout(&http::Request::new(String::new())), Duration::from_secs(120));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

impl Deadline {
    /// The moment.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.0
    }

    /// What is left until then; zero when it has passed.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        clock::at(self.0).since(clock::now())
    }
}

/// Notes the deadline of a call that is about to be sent. `NEVER`: it has none.
#[inline]
pub(crate) fn note(deadline: Time, extensions: &mut Extensions) {
    if deadline != Time::NEVER {
        extensions.insert(Deadline(clock::instant(deadline)));
    }
}

/// Tells what is left, in whole milliseconds.
pub(crate) fn tell(name: &HeaderName, deadline: Option<Deadline>, headers: &mut HeaderMap) {
    if let Some(deadline) = deadline {
        let millis = u64::try_from(deadline.time_left().as_millis()).unwrap_or(u64::MAX);
        headers.insert(name, HeaderValue::from(millis));
    }
}
