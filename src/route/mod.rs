//! Goes round a busy lane, where another one of the same worth is idle.

mod body;
mod candidate;
mod router;

pub use self::body::RewriteBody;
pub use self::candidate::{Candidate, RouteError};
pub use self::router::{QueueAwareRouter, RouteFuture, Routing};
