//! Which answers come in pieces.

use super::table::{ANSWERS, ONE_PIECE_SHARE, SURPRISE_SHARE};

/// Only an answer in pieces tells by its first byte how long its call was queued. For one in a single piece, the first
/// byte is the last.
#[derive(Debug, Default)]
pub(super) struct Answers {
    one_piece: f64,
    surprises: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Pieces,
    OnePiece,
}

impl Answers {
    /// What to expect of a call that is sent: what it asked for or, where that is not known, what most answers were.
    pub(super) fn expected(&self, asks_for_stream: Option<bool>) -> Shape {
        if asks_for_stream.unwrap_or(self.one_piece <= ONE_PIECE_SHARE) { Shape::Pieces } else { Shape::OnePiece }
    }

    pub(super) fn on_answer(&mut self, expected: Shape, is: Shape) {
        let one_piece = f64::from(u8::from(is == Shape::OnePiece));
        let surprise = if expected == Shape::Pieces { one_piece } else { 0.0 };
        self.one_piece += (one_piece - self.one_piece) / ANSWERS;
        self.surprises += (surprise - self.surprises) / ANSWERS;
    }

    /// Too many calls pass for queued that are only being answered in one piece.
    pub(super) fn hide_queue(&self) -> bool {
        self.surprises > SURPRISE_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(answers: &mut Answers, asks_for_stream: Option<bool>, is: Shape, count: u32) {
        for _ in 0..count {
            answers.on_answer(answers.expected(asks_for_stream), is);
        }
    }

    #[test]
    fn what_is_asked_for_is_expected() {
        let mut answers = Answers::default();
        run(&mut answers, Some(false), Shape::OnePiece, 1000);
        assert_eq!(answers.expected(Some(true)), Shape::Pieces);
        assert!(!answers.hide_queue(), "no surprise");
    }

    #[test]
    fn else_what_most_answers_were() {
        let mut answers = Answers::default();
        assert_eq!(answers.expected(None), Shape::Pieces);
        run(&mut answers, None, Shape::OnePiece, 100);
        assert_eq!(answers.expected(None), Shape::OnePiece);
    }

    #[test]
    fn a_mixed_lane_that_does_not_say_hides_its_queue() {
        let mut answers = Answers::default();
        for _ in 0..10 {
            run(&mut answers, None, Shape::Pieces, 3);
            run(&mut answers, None, Shape::OnePiece, 1);
        }
        assert!(answers.hide_queue());
        run(&mut answers, None, Shape::Pieces, 200);
        assert!(!answers.hide_queue());
    }
}
