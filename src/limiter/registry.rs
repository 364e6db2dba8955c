//! Which lanes and pools there are: made on first use, bounded in number.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::clock;
use super::key::{LaneKey, LaneRef};
use super::lane::LaneInner;
use super::observer::OwnControllers;
use super::pool::Pool;
use super::shared::Shared;
use crate::config::Policy;
use crate::meters::{FOLDED, Meters, PoolMeters};

/// Lanes evicted in one go, so that a stream of new names does not search the table for each of them.
const EVICT_AT_ONCE: usize = 64;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

#[derive(Debug)]
pub(super) struct Registry {
    lanes: Map<LaneKey, Arc<LaneInner>>,
    /// By endpoint and kind: the lane key without a model.
    pools: Map<LaneKey, Arc<Pool>>,
    prefix: &'static str,
    meters: Labels<Meters>,
    pool_meters: Labels<PoolMeters>,
}

/// What is shown under which label. Metric series cannot be taken back, so a name keeps its label for good, and only so many
/// names get one.
#[derive(Debug)]
struct Labels<M> {
    meters: Map<String, Arc<M>>,
    folded: Option<Arc<M>>,
}

impl Registry {
    pub(super) fn new(prefix: &'static str) -> Self {
        Self {
            lanes: Map::default(),
            pools: Map::default(),
            prefix,
            meters: Labels::default(),
            pool_meters: Labels::default(),
        }
    }

    pub(super) fn find(&self, key: &LaneRef<'_>) -> Option<Arc<LaneInner>> {
        let lane = self.lanes.get(key)?;
        // Looked at first: a write would take the line away from every other core that looks the lane up.
        if !lane.is_recent.load(Ordering::Relaxed) {
            lane.is_recent.store(true, Ordering::Relaxed);
        }
        Some(lane.clone())
    }

    /// Makes the lane if it is not there. When all lanes are busy and no more may be made, calls share one overflow lane.
    pub(super) fn make(
        &mut self,
        key: &LaneRef<'_>,
        own: &mut OwnControllers,
        policy: &Arc<Policy>,
        shared: &Arc<Shared>,
    ) -> Arc<LaneInner> {
        if let Some(lane) = self.find(key) {
            return lane;
        }
        let overflow = LaneKey::without_model(FOLDED);
        if self.lanes.len() >= policy.max_lanes() && self.evict() == 0 && *key != overflow.as_ref() {
            return self.make(&overflow.as_ref(), &mut OwnControllers::default(), policy, shared);
        }
        self.insert(key.to_key(), own, policy, shared)
    }

    pub(super) fn lanes(&self) -> Vec<Arc<LaneInner>> {
        self.lanes.values().cloned().collect()
    }

    pub(super) fn pool(&self, key: &LaneKey) -> Option<Arc<Pool>> {
        self.pools.get(key).cloned()
    }

    pub(super) fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.values().cloned().collect()
    }

    fn insert(
        &mut self,
        key: LaneKey,
        own: &mut OwnControllers,
        policy: &Arc<Policy>,
        shared: &Arc<Shared>,
    ) -> Arc<LaneInner> {
        let (prefix, max_labels) = (self.prefix, policy.max_lanes());
        let meters = self.meters.of(key.to_string(), max_labels, |label| Meters::new(prefix, label));
        let pool_key = key.pool();
        let make = || {
            let meters = self.pool_meters.of(pool_key.to_string(), max_labels, |label| PoolMeters::new(prefix, label));
            Pool::new(pool_key.clone(), own.pool.take(), policy, meters, shared.clone())
        };
        let pool = self.pools.entry(pool_key.clone()).or_insert_with(make).clone();
        let lane = pool.add_lane(key.clone(), own.lane.take(), policy, meters);
        self.lanes.insert(key, lane.clone());
        lane
    }

    /// Makes room: lanes that hold nothing, remember nothing and are known to nobody, first those not used lately.
    fn evict(&mut self) -> usize {
        let not_lately: Vec<LaneKey> = self
            .lanes
            .iter()
            .filter(|(_, lane)| !lane.is_recent.swap(false, Ordering::Relaxed))
            .map(|(key, _)| key.clone())
            .collect();
        let evicted = self.evict_of(not_lately);
        if evicted > 0 {
            return evicted;
        }
        let all = self.lanes.keys().cloned().collect();
        self.evict_of(all)
    }

    fn evict_of(&mut self, keys: Vec<LaneKey>) -> usize {
        let now = clock::now();
        let mut evicted = 0;
        for key in keys {
            let Some(lane) = self.lanes.get(&key.as_ref()) else { continue };
            // The registry's own handle is the only one, and while it is locked nobody can get another.
            if Arc::strong_count(lane) == 1 && lane.pool.remove_lane(lane.id, now) {
                self.lanes.remove(&key.as_ref());
                evicted += 1;
                if evicted == EVICT_AT_ONCE {
                    break;
                }
            }
        }
        self.pools.retain(|_, pool| Arc::strong_count(pool) > 1);
        evicted
    }
}

impl<M> Labels<M> {
    fn of(&mut self, label: String, most: usize, make: impl Fn(String) -> M) -> Arc<M> {
        match self.meters.get(&label) {
            // It was evicted, and is back.
            Some(meters) if Arc::strong_count(meters) == 1 => return meters.clone(),
            // Another is shown alike, and one gauge cannot tell of two.
            Some(_) => {}
            None if self.meters.len() < most => {
                let meters = Arc::new(make(label.clone()));
                self.meters.insert(label, meters.clone());
                return meters;
            }
            None => {}
        }
        self.folded.get_or_insert_with(|| Arc::new(make(FOLDED.to_owned()))).clone()
    }
}

impl<M> Default for Labels<M> {
    fn default() -> Self {
        Self { meters: Map::default(), folded: None }
    }
}
