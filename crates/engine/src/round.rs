//! Turns of several members, one after the other, each as long as its weight says.

/// The members, and whose turn it is.
#[derive(Debug)]
pub(crate) struct Round<T> {
    members: Vec<T>,
    /// The index of the member that has its turn.
    current: usize,
    /// The length of what is left of its turn.
    left: u32,
}

impl<T> Default for Round<T> {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            current: 0,
            left: 0,
        }
    }
}

impl<T> Round<T> {
    /// The members.
    pub(crate) fn members(&self) -> std::slice::Iter<'_, T> {
        self.members.iter()
    }

    /// Adds a member, whose turn comes last.
    pub(crate) fn add(&mut self, member: T) {
        self.members.push(member);
    }

    /// Removes members. If one of them has its turn, the next one's comes.
    pub(crate) fn remove(&mut self, is_removed: impl Fn(&T) -> bool) {
        while let Some(place) = self.members.iter().position(&is_removed) {
            self.members.remove(place);
            if place < self.current {
                self.current -= 1;
            } else if place == self.current {
                // As if the one before had just had its turn.
                self.left = 0;
                self.current = place
                    .checked_sub(1)
                    .unwrap_or(self.members.len().saturating_sub(1));
            }
        }
    }

    /// Returns the member that has its turn; `None` if there are no members.
    pub(crate) fn current(&mut self) -> Option<&mut T> {
        self.members.get_mut(self.current)
    }

    /// Returns true if the turn is over.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Uses up some of the turn.
    pub(crate) fn use_up(&mut self, length: u32) {
        self.left = self.left.saturating_sub(length);
    }

    /// Gives the next member its turn, as long as `weight` says.
    pub(crate) fn advance(&mut self, weight: impl Fn(&T) -> u32) {
        self.current = (self.current + 1) % self.members.len().max(1);
        self.left = self.members.get(self.current).map_or(0, weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members are their weights.
    fn round(weights: &[u32]) -> Round<u32> {
        let mut round = Round::default();
        weights.iter().for_each(|weight| round.add(*weight));
        round
    }

    fn turns(round: &mut Round<u32>, count: usize) -> Vec<u32> {
        let mut turn = || {
            while round.is_over() {
                round.advance(|weight| *weight);
            }
            round.use_up(1);
            round.current().copied().expect("members")
        };
        (0..count).map(|_| turn()).collect()
    }

    #[test]
    fn turns_are_as_long_as_weights() {
        let mut round = round(&[3, 1, 2]);
        assert_eq!(turns(&mut round, 9), [1, 2, 2, 3, 3, 3, 1, 2, 2]);
    }

    #[test]
    fn who_leaves_gives_the_turn_to_the_next() {
        for (removed, expected) in [(1, [2, 3, 4]), (2, [3, 4, 1]), (4, [2, 3, 1])] {
            let mut round = round(&[1, 2, 3, 4]);
            // The first has just had its turn.
            assert_eq!(turns(&mut round, 10)[9], 1);
            round.remove(|weight| *weight == removed);
            let mut seen = turns(&mut round, 9);
            seen.dedup();
            assert_eq!(seen[..3], expected, "without {removed}");
        }
        let mut round = round(&[1]);
        round.remove(|_| true);
        round.advance(|weight| *weight);
        assert!(round.current().is_none() && round.is_over());
    }
}
