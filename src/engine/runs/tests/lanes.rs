//! Runs and the lanes that they call: no order in which they wait for each other's slots is without a way on.
//!
//! The agents here do what `limiter::of_run` does: lend when a lane makes them wait, take the run slot back once the lane
//! has granted theirs and before the call is sent, and give the lane's slot up when the run slot takes too long.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It has not come yet.
    Absent,
    /// It has no slot yet, or computes with one.
    Own,
    InLine(Whose),
    /// The lane has granted a slot, which waits for the run slot.
    Granted,
    /// It lost that slot, and still wants its run slot.
    Parked,
    Sent,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    OwnTurn,
    Tool,
}

/// The run of one who has not come.
const NOBODY: RunRef = RunRef { index: u32::MAX, id: RunId(0) };

struct Agent {
    run: RunRef,
    doing: Doing,
    lane: usize,
    turns: u32,
}

struct Lane {
    free: u32,
    line: VecDeque<usize>,
}

struct World {
    runs: Plain,
    agents: Vec<Agent>,
    lanes: Vec<Lane>,
    tools: bool,
    most: u32,
}

impl World {
    fn new(concurrent: u32, depth: u32, lane_slots: &[u32], agents: u32, turns: u32, tools: bool) -> Self {
        let lanes = lane_slots.iter().map(|free| Lane { free: *free, line: VecDeque::new() }).collect();
        let agent = |_| Agent { run: NOBODY, doing: Doing::Absent, lane: 0, turns };
        Self { runs: runs(concurrent, depth), agents: (0..agents).map(agent).collect(), lanes, tools, most: concurrent }
    }

    fn is_running(&self, at: usize) -> bool {
        is_running(&self.runs, self.agents[at].run)
    }

    /// Whether the agent can do something now, without the help of time.
    fn can_move(&self, at: usize) -> bool {
        match self.agents[at].doing {
            Doing::Own | Doing::Granted | Doing::Parked => self.is_running(at),
            Doing::Absent | Doing::Sent => true,
            Doing::InLine(_) | Doing::Over => false,
        }
    }

    fn step(&mut self, at: usize, dice: usize) {
        let Agent { run, doing, lane, turns } = self.agents[at];
        let mut effects = Effects::default();
        match doing {
            Doing::Absent => {
                let started = self.runs.start(ask(small(at)), |id| id, Time::ZERO, &mut effects);
                self.agents[at].doing = if started.is_ok() { Doing::Own } else { Doing::Over };
                self.agents[at].run = started.unwrap_or(NOBODY);
            }
            Doing::Own if turns == 0 || dice % 7 == 0 => self.end(at),
            Doing::Own => {
                self.agents[at].lane = dice % self.lanes.len();
                self.agents[at].turns -= 1;
                let whose = if self.tools && dice % 3 == 0 { Whose::Tool } else { Whose::OwnTurn };
                self.ask_lane(at, whose, VecDeque::push_back);
            }
            Doing::Granted => {
                assert_eq!(self.runs.take_back(run, Time::ZERO, &mut effects), Back::Held);
                self.agents[at].doing = Doing::Sent;
            }
            Doing::Parked => self.ask_lane(at, Whose::OwnTurn, VecDeque::push_front),
            Doing::Sent => {
                self.agents[at].doing = Doing::Own;
                self.release(lane);
            }
            Doing::InLine(_) | Doing::Over => {}
        }
    }

    fn ask_lane(&mut self, at: usize, whose: Whose, join: fn(&mut VecDeque<usize>, usize)) {
        let lane = &mut self.lanes[self.agents[at].lane];
        if lane.free > 0 {
            lane.free -= 1;
            self.agents[at].doing = Doing::Sent;
            return;
        }
        join(&mut lane.line, at);
        self.agents[at].doing = Doing::InLine(whose);
        if whose == Whose::OwnTurn {
            self.runs.lend(self.agents[at].run, Time::ZERO, &mut Effects::default());
        }
    }

    /// A slot of the lane is free: the next in its line has it, and asks for its run slot.
    fn release(&mut self, lane: usize) {
        let Some(next) = self.lanes[lane].line.pop_front() else {
            self.lanes[lane].free += 1;
            return;
        };
        if self.agents[next].doing == Doing::InLine(Whose::Tool) {
            self.agents[next].doing = Doing::Sent;
        } else {
            self.agents[next].doing = Doing::Granted;
            self.runs.take_back(self.agents[next].run, Time::ZERO, &mut Effects::default());
        }
    }

    /// Over, wherever it stands: finished if it computed, cancelled if not.
    fn end(&mut self, at: usize) {
        let Agent { run, doing, lane, .. } = self.agents[at];
        self.agents[at].doing = Doing::Over;
        self.runs.end(run, Ending::Cancelled, Time::ZERO, &mut Effects::default());
        match doing {
            Doing::InLine(_) => self.lanes[lane].line.retain(|other| *other != at),
            Doing::Granted | Doing::Sent => self.release(lane),
            Doing::Absent | Doing::Own | Doing::Parked | Doing::Over => {}
        }
    }

    /// Time passes: lane slots that wait for a run slot go to the next in line.
    fn lapse(&mut self) -> bool {
        let waiting: Vec<usize> =
            (0..self.agents.len()).filter(|at| self.agents[*at].doing == Doing::Granted).collect();
        for at in &waiting {
            self.agents[*at].doing = Doing::Parked;
            self.release(self.agents[*at].lane);
        }
        !waiting.is_empty()
    }

    fn check(&self) {
        let computing =
            (0..self.agents.len()).filter(|at| self.agents[*at].doing != Doing::Over && self.is_running(*at));
        assert!(computing.count() <= self.most as usize);
        let sent = (0..self.agents.len()).filter(|at| self.agents[*at].doing == Doing::Sent);
        assert!(sent.into_iter().all(|at| self.is_running(at)), "a call was sent without a run slot");
    }

    /// Whether everybody comes to an end.
    fn runs_to_the_end(&mut self, dice: &[usize], may_lapse: bool) -> bool {
        let mut dice = dice.iter().copied().cycle();
        let mut next = || dice.next().unwrap_or(0);
        for _ in 0..10_000 {
            let movers: Vec<usize> = (0..self.agents.len()).filter(|at| self.can_move(*at)).collect();
            if self.agents.iter().all(|agent| agent.doing == Doing::Over) {
                return true;
            }
            let roll = next();
            if roll % 11 == 0 {
                self.end(roll % self.agents.len());
            } else if movers.is_empty() {
                if !may_lapse || !self.lapse() {
                    return false;
                }
            } else {
                self.step(movers[roll % movers.len()], next());
            }
            self.check();
        }
        false
    }
}

proptest! {
    #[test]
    fn runs_and_lanes_never_wait_for_each_other_for_ever(
        concurrent in 1_u32..4, depth in 0_u32..5, lane_slots in prop::collection::vec(1_u32..3, 1..3),
        agents in 1_u32..7, turns in 1_u32..5, dice in prop::collection::vec(1_usize..1_000, 30..60),
    ) {
        let mut world = World::new(concurrent, depth, &lane_slots, agents, turns, false);
        prop_assert!(world.runs_to_the_end(&dice, false), "everybody waits for somebody");
        prop_assert_eq!(world.runs.counts(), Counts::default());
    }

    #[test]
    fn calls_that_never_lend_wait_for_no_run_slot_longer_than_a_lease(
        concurrent in 1_u32..4, depth in 0_u32..5, lane_slots in prop::collection::vec(1_u32..3, 1..3),
        agents in 1_u32..7, turns in 1_u32..5, dice in prop::collection::vec(1_usize..1_000, 30..60),
    ) {
        let mut world = World::new(concurrent, depth, &lane_slots, agents, turns, true);
        prop_assert!(world.runs_to_the_end(&dice, true), "everybody waits for somebody");
        prop_assert_eq!(world.runs.counts(), Counts::default());
    }
}
