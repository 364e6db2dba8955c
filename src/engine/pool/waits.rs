//! What those in a lane's line wait for: noted where it is found out, which is where it is looked who goes next.
//!
//! Only followed lanes have more than two causes. The others wait for a slot, or for a pause to end, which is known
//! beforehand.

use super::Pool;
use crate::engine::step::LaneId;
use crate::engine::time::Time;
use crate::engine::waits::WaitsFor;

impl Pool {
    /// Nobody in the lane's line may take a slot.
    #[cold]
    pub(super) fn note_no_slot(&mut self, id: LaneId, now: Time) {
        let opens_at = self.opens_at(id, now);
        let waits = &mut self.lane_mut(id).waits;
        match opens_at {
            Some(opens_at) => waits.note_pause(opens_at, now),
            None => waits.note_cause(WaitsFor::Slot, now),
        }
    }

    /// Whether one who leaves the lane's line has to say when. Of many at once not all need ask the clock: until one does,
    /// those who left are counted on, an eighth of those who wait at most.
    pub(crate) fn asks_time(&self, id: LaneId) -> bool {
        let lane = self.lane(id);
        let (counted, waiting) = (lane.waits.waiting(), lane.queue.waiting());
        counted.saturating_sub(waiting) >= waiting.saturating_sub(1) / 8
    }

    /// By cause, whole seconds that calls of the lane have waited and that were not told before.
    #[inline]
    pub(crate) fn waited(&mut self, id: LaneId) -> Option<[u64; 4]> {
        self.lane_mut(id).waits.news()
    }
}
