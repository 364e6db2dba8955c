//! A short text that may come in pieces.

/// The longest name looked for is `response.code_interpreter_call_code.delta`.
const ROOM: usize = 48;

/// Keeps a text that fits, and of a longer one that it was too long.
#[derive(Clone, Debug)]
pub(super) struct Short {
    bytes: [u8; ROOM],
    /// More than there is room for: too long, or spelled with escapes.
    length: u8,
}

impl Short {
    const TOO_LONG: u8 = u8::MAX;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        let start = usize::from(self.length);
        match self.bytes.get_mut(start..start + piece.len()) {
            Some(room) => {
                room.copy_from_slice(piece);
                self.length = u8::try_from(start + piece.len()).unwrap_or(Self::TOO_LONG);
            }
            None => self.spoil(),
        }
    }

    /// It is none of the texts that are looked for.
    pub(super) fn spoil(&mut self) {
        self.length = Self::TOO_LONG;
    }

    /// Empty if it did not fit: no text that is looked for is.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }
}
