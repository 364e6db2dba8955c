//! Budgets per minute: charged together with the slot, in the lane and in the pool around it, or not at all.
//!
//! A waiter that comes first and does not fit is not overtaken by a smaller one, or a large call would never go: while it
//! does not fit in its lane's budget, nobody of its lane goes, and while it does not fit in the pool's, nobody at all.

use super::Pool;
use crate::engine::outcome::Outcome;
use crate::engine::priority::Priority;
use crate::engine::queue::Next;
use crate::engine::quota::{Dimension, Quota, QuotaPolicy, Spent, Tokens, Used};
use crate::engine::steering::Ending;
use crate::engine::step::{Blocked, LaneId};
use crate::engine::time::Time;

impl Pool {
    /// Puts other budgets in force for the pool; what was used stays used.
    pub(crate) fn set_quota(&mut self, policy: Option<QuotaPolicy>, now: Time) {
        set(&mut self.quota, policy, now.max(self.now));
        self.note_all_followed();
    }

    /// The same for one lane.
    pub(crate) fn set_lane_quota(&mut self, id: LaneId, policy: Option<QuotaPolicy>, now: Time) {
        let now = now.max(self.now);
        set(&mut self.lane_mut(id).quota, policy, now);
        self.note_followed(id);
    }

    #[inline]
    pub(super) fn is_charged(&self, id: LaneId) -> bool {
        self.quota.is_some() || self.lane(id).quota.is_some()
    }

    #[inline(never)]
    pub(super) fn check_possible(&self, id: LaneId, tokens: Tokens) -> Result<(), Blocked> {
        let quotas = [&self.lane(id).quota, &self.quota];
        let too_large = quotas.into_iter().flatten().find_map(|quota| quota.too_large(tokens));
        too_large.map_or(Ok(()), |(dimension, capacity)| Err(Blocked::TooLarge(dimension, capacity)))
    }

    /// Charges a call that found a slot free, where there is a budget, unless somebody waits for tokens before it.
    #[inline]
    pub(super) fn charge_newcomer(
        &mut self,
        id: LaneId,
        class: Priority,
        tokens: Tokens,
        now: Time,
    ) -> Result<(), Blocked> {
        if self.waiting > 0 && self.is_charged(id) && self.is_behind(id, class, now) {
            return Err(Blocked::Busy);
        }
        let (mut of_lane, mut of_pool) = self.quotas(id);
        let fits_lane = of_lane.as_mut().is_none_or(|quota| quota.fits_now(tokens, now));
        if fits_lane && of_pool.as_mut().is_none_or(|quota| quota.fits_now(tokens, now)) {
            if let Some(quota) = of_lane {
                quota.take(tokens);
            }
            if let Some(quota) = of_pool {
                quota.take(tokens);
            }
            return Ok(());
        }
        Err(self.shortage(id, tokens, now))
    }

    /// Of a call that does not fit now.
    #[cold]
    fn shortage(&mut self, id: LaneId, tokens: Tokens, now: Time) -> Blocked {
        let mut latest = (now, Dimension::Requests);
        self.each_quota(id, |quota| {
            let fits = quota.fits_at(tokens, now);
            if fits.0 > latest.0 {
                latest = fits;
            }
        });
        let (fits_at, dimension) = latest;
        Blocked::Short(dimension, fits_at.since(now))
    }

    /// Whether one who waits for tokens goes before a newcomer of this class.
    fn is_behind(&mut self, id: LaneId, class: Priority, now: Time) -> bool {
        let pool_open = self.valve.open_to(now);
        let is_before = |pool: &mut Self, of: LaneId| {
            let lane = pool.lane_mut(of);
            let open = pool_open.intersect(lane.valve.open_to(now));
            let Some(next) = lane.next(open, now) else { return false };
            // Shares are between those of one lane.
            if of == id { lane.goes_before(next, class) } else { next.rank.0 <= class as u8 }
        };
        if self.quota.is_none() {
            return is_before(self, id);
        }
        (0..self.listed.len()).any(|at| is_before(self, LaneId(self.listed[at])))
    }

    pub(super) fn charge(&mut self, id: LaneId, tokens: Tokens) {
        self.each_quota(id, |quota| quota.take(tokens));
    }

    /// What a call was charged that was not sent.
    pub(super) fn refund(&mut self, id: LaneId, tokens: Tokens, now: Time) {
        self.each_quota(id, |quota| quota.give_back(tokens, now));
    }

    /// A call is over: what it did not use comes back, and what it used beyond its charge is owed.
    pub(super) fn settle_charge(
        &mut self,
        id: LaneId,
        charged: Tokens,
        sent_at: Time,
        ending: &Ending,
        now: Time,
    ) -> Spent {
        let outcome = ending.verdict.outcome();
        let used = Used::of(charged, outcome, ending.first_byte_at != Time::ZERO, ending.reported);
        if let Some(past) = &mut self.lane_mut(id).past {
            past.note_used(used.tokens);
        }
        let spent = Spent::of(charged, used.tokens);
        let (of_lane, of_pool) = self.quotas(id);
        if let Some(quota) = of_lane {
            quota.settle(charged, used, spent, now);
        }
        if let Some(quota) = of_pool {
            quota.settle(charged, used, spent, now);
        }
        if outcome == Outcome::Overload || ending.remaining.is_some() {
            self.heed_provider(id, sent_at, ending, now);
        }
        spent
    }

    /// What a refusal, or a header, says of the provider's own budget.
    #[inline(never)]
    fn heed_provider(&mut self, id: LaneId, sent_at: Time, ending: &Ending, now: Time) {
        self.each_quota(id, |quota| {
            if ending.verdict.outcome() == Outcome::Overload {
                quota.slow_down(sent_at, now);
            }
            // Last: what comes back of a refused call is no more than what the provider says there is.
            if let Some(remaining) = &ending.remaining {
                quota.heed(**remaining, now);
            }
        });
    }

    /// Whether the first of a lane fits in the lane's budget; if not, it is looked at again when it does.
    #[cold]
    pub(super) fn fits_lane(&mut self, id: LaneId, next: Next, now: Time) -> bool {
        let lane = self.lane_mut(id);
        let tokens = lane.kept.of(next.index).asked.tokens;
        let fits_at = lane.quota.as_mut().map_or(now, |quota| quota.fits_at(tokens, now).0);
        self.wait_for_tokens(fits_at, now)
    }

    /// The same for the first of the pool, and the pool's budget.
    #[cold]
    pub(super) fn fits_pool(&mut self, id: LaneId, next: Next, now: Time) -> bool {
        let tokens = self.lane(id).kept.of(next.index).asked.tokens;
        let fits_at = self.quota.as_mut().map_or(now, |quota| quota.fits_at(tokens, now).0);
        self.wait_for_tokens(fits_at, now)
    }

    fn wait_for_tokens(&mut self, fits_at: Time, now: Time) -> bool {
        if fits_at > now {
            self.next_timeout = self.next_timeout.min(fits_at);
        }
        fits_at <= now
    }

    /// Sees to it that whoever waits for tokens is looked at when there are enough.
    #[cold]
    pub(super) fn expect_tokens(&mut self, id: LaneId, now: Time) {
        if self.quota.is_some() {
            self.next_of_all(now);
        } else {
            self.next_of(id, now);
        }
    }

    fn each_quota(&mut self, id: LaneId, mut act: impl FnMut(&mut Quota)) {
        let (of_lane, of_pool) = self.quotas(id);
        if let Some(quota) = of_lane {
            act(quota);
        }
        if let Some(quota) = of_pool {
            act(quota);
        }
    }

    /// Of the lane, and of the pool around it. What every call does with them is written out for each: a closure for both would
    /// be inlined in neither.
    #[inline]
    fn quotas(&mut self, id: LaneId) -> (Option<&mut Quota>, Option<&mut Quota>) {
        let Self { lanes, quota, .. } = self;
        (lanes[id.index()].as_mut().and_then(|lane| lane.quota.as_deref_mut()), quota.as_deref_mut())
    }
}

fn set(quota: &mut Option<Box<Quota>>, policy: Option<QuotaPolicy>, now: Time) {
    match (quota.as_mut(), policy) {
        (Some(quota), Some(policy)) => quota.set_policy(policy, now),
        (_, policy) => *quota = policy.map(|policy| Box::new(Quota::new(policy, now))),
    }
}
