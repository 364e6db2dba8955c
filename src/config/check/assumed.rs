//! An answer whose length is not said is charged the `max_output` of its lane, in the budget of its pool too. Where that can
//! never hold so much, every such call would be refused.
//!
//! Which lanes there will be is not known before they are called, so this goes by patterns, and refuses what is certain:
//! that all lanes an entry is for lie in the pool, or that all lanes of the pool are the entry's. Patterns that merely
//! overlap (`*|acme/smart` and `https://gw.example/*`) may have no lane in common.

use crate::config::pattern::matches;
use crate::config::{ConfigError, LimitConfig, Quota};
use crate::engine::quota::Dimension;
use crate::limiter::key::Kind;

/// Says how lanes are charged, those that match its pattern.
struct Entry<'c> {
    path: String,
    lanes: &'c str,
    quota: &'c Quota,
}

pub(super) fn check_assumed(config: &LimitConfig) -> Result<(), ConfigError> {
    let base = config.quota.iter().map(|quota| Entry { path: String::new(), lanes: "*", quota });
    let overrides = config.overrides.iter().enumerate().filter_map(|(n, lane)| {
        Some(Entry { path: format!("overrides[{n}]."), lanes: &lane.lane, quota: lane.quota.as_ref()? })
    });
    let entries: Vec<Entry<'_>> = base.chain(overrides).collect();
    for (m, pool) in config.pools.iter().enumerate() {
        let Some(budget) = pool.quota.as_ref().filter(|_| is_of_chat(pool.kind)) else { continue };
        let is_last = |endpoint: &str| {
            let mut later = config.pools[m + 1..].iter().filter(|later| is_of_chat(later.kind));
            !later.any(|later| matches(&later.endpoint, endpoint))
        };
        for (n, entry) in entries.iter().enumerate() {
            let Some(lanes) = certain(entry.lanes, &pool.endpoint) else { continue };
            let endpoint = lanes.split('|').next().unwrap_or_default();
            let is_in_force = !entries[n + 1..].iter().any(|later| matches(later.lanes, &lanes)) && is_last(endpoint);
            if is_in_force {
                check_fits(entry, budget, m)?;
            }
        }
    }
    Ok(())
}

fn check_fits(entry: &Entry<'_>, budget: &Quota, pool: usize) -> Result<(), ConfigError> {
    let max_output = entry.quota.max_output;
    for (dimension, per_minute) in Dimension::ALL.into_iter().zip(budget.per_minute()) {
        let Some(per_minute) = per_minute.filter(|_| dimension.has_output()) else { continue };
        let held = budget.held(per_minute).floor();
        if f64::from(max_output) > held {
            let key = format!("{}quota.max_output", entry.path);
            let allowed =
                format!("at most {held}, all that `pools[{pool}].quota.{dimension}` and its `burst` can hold");
            return Err(ConfigError::new(key, max_output, allowed));
        }
    }
    Ok(())
}

/// The lanes that are certain to have both, if there are any: a pattern that covers another, in which `*` is a character
/// like all others, covers all that the other matches.
fn certain(lanes: &str, endpoint: &str) -> Option<String> {
    if KINDS_APART.iter().any(|kind| lanes.ends_with(&format!("|{}", kind.as_str()))) {
        return None;
    }
    let of_pool = format!("{endpoint}|*");
    if matches(lanes, &of_pool) {
        return Some(of_pool);
    }
    // What stands behind the first star may be about the model.
    let whole = match lanes.split_once('*') {
        Some((endpoint, _)) if !lanes.contains('|') => format!("{endpoint}*|*"),
        _ => lanes.to_owned(),
    };
    matches(&of_pool, &whole).then_some(whole)
}

/// Lanes of these say their kind.
const KINDS_APART: [Kind; 4] = [Kind::Embedding, Kind::Image, Kind::Audio, Kind::Other];

fn is_of_chat(kind: Option<Kind>) -> bool {
    kind.is_none_or(|kind| kind == Kind::Chat)
}
