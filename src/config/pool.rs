use serde::{Deserialize, Serialize};

use super::{Limit, Quota};
use crate::limiter::key::Kind;

/// A cap over all lanes of a provider and kind together, on top of what each lane allows: the smaller rules.
///
/// With a [`Limit`] that adapts, the controller sees the calls of all these lanes, and a pause that one of them is asked
/// for holds them all back: the provider is taken for one upstream.
///
/// The pattern is compared with the whole endpoint, with `*` as in [`LaneOverride`](crate::LaneOverride). Each endpoint
/// that matches has a pool of its own for each kind: a pattern for two endpoints does not make them share. Of several
/// entries that match, only the last applies.
///
/// # Examples
///
/// ```
/// use tower_inflight::{Kind, LimitConfig, PoolLimit};
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     [[pools]]
///     endpoint = "https://gw.example/*"
///     max_inflight = 12
///
///     [[pools]]
///     endpoint = "https://gw.example/v1"
///     kind = "embedding"
///     max_inflight = 40
///     interactive_reserve = 8
///     "#,
/// )?;
///
/// assert_eq!(
///     config.pools,
///     [
///         PoolLimit::new("https://gw.example/*", 12),
///         PoolLimit::new("https://gw.example/v1", 40).kind(Kind::Embedding).interactive_reserve(8),
///     ]
/// );
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// # Errors
///
/// Refused are an empty pattern, a cap of 0 (leave the entry out for no cap) unless a controller finds the limit or there
/// is a quota, settings of a controller that can never work, and a reserve above the cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolLimit {
    pub(super) endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Kind>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) max_inflight: u32,
    #[serde(default, skip_serializing_if = "Limit::is_fixed")]
    pub(super) limit: Limit,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) quota: Option<Quota>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interactive_reserve: Option<u32>,
}

impl PoolLimit {
    /// At most `max_inflight` calls at once in the pool of each kind on each endpoint that matches `endpoint`.
    #[must_use]
    pub fn new(endpoint: impl Into<String>, max_inflight: u32) -> Self {
        Self {
            endpoint: endpoint.into(),
            kind: None,
            max_inflight,
            limit: Limit::Fixed,
            quota: None,
            interactive_reserve: None,
        }
    }

    /// As many calls at once in the pool of each kind on each endpoint that matches `endpoint` as `limit` finds good.
    #[must_use]
    pub fn with_limit(endpoint: impl Into<String>, limit: Limit) -> Self {
        Self { limit, ..Self::new(endpoint, 0) }
    }

    /// What all lanes of the pool may use per minute together: charged beside what each lane may use. `max_output` and
    /// `when_short` are those of the lane's own quota, if it has one.
    ///
    /// A lane whose `max_output` is more than this quota can ever hold could admit no call that does not say how long its
    /// answer may be. That is refused when the limiter is built where it is certain: all lanes of an override are of this pool,
    /// or all of the pool have that `max_output`. Where patterns merely overlap, the lane may never be; if it comes to be, such
    /// calls are refused as [`RejectKind::TooLarge`](crate::RejectKind::TooLarge).
    #[must_use]
    pub fn quota(self, quota: Quota) -> Self {
        Self { quota: Some(quota), ..self }
    }

    /// No more than this, whatever the controller finds.
    #[must_use]
    pub fn max_inflight(self, calls: u32) -> Self {
        Self { max_inflight: calls, ..self }
    }

    /// Only for the pools of this kind.
    #[must_use]
    pub fn kind(self, kind: Kind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// How many of the pool's slots only interactive calls may take, at most one less than the cap. Default: as many as
    /// [`LimitConfig::interactive_reserve`](crate::LimitConfig::interactive_reserve), cut to fit.
    #[must_use]
    pub fn interactive_reserve(self, slots: u32) -> Self {
        Self { interactive_reserve: Some(slots), ..self }
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
