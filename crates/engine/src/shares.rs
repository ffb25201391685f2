//! The time that each user has been served: whoever has had less goes first.
//!
//! This is fair queueing by start times (Goyal, Vin, Cheng: "Start-time fair queueing", SIGCOMM
//! 1996): a user's account grows by the time that its requests take, and the account of the user
//! that is served is the time of the clock that all share.

use std::time::Duration;

use slipstream_offload::costs::SHARE_CREDIT;

/// The accounts of users. There is one for each user that has ever connected, of those few that
/// may: one that connects again finds its account as it was.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    accounts: Vec<Account>,
    clock: Duration,
}

/// The place of a user's account.
pub(crate) type Place = usize;

#[derive(Debug)]
struct Account {
    user: u32,
    served: Duration,
}

impl Shares {
    /// Returns the place of the account of this user; makes one if there is none.
    pub(crate) fn place(&mut self, user: u32) -> Place {
        let known = self.accounts.iter().position(|known| known.user == user);
        known.unwrap_or_else(|| {
            let served = self.clock;
            self.accounts.push(Account { user, served });
            self.accounts.len() - 1
        })
    }

    /// Returns the time that the user has been served.
    pub(crate) fn served(&self, place: Place) -> Duration {
        self.accounts.get(place).map_or(self.clock, |it| it.served)
    }

    /// Notes that a user asks for something again. The time in which it asked for nothing is not
    /// saved up, but for a little.
    pub(crate) fn begin(&mut self, place: Place) {
        let least = self.clock.saturating_sub(SHARE_CREDIT);
        if let Some(account) = self.accounts.get_mut(place) {
            account.served = account.served.max(least);
        }
    }

    /// Notes that the users at `places` are served together, which takes `cost`.
    pub(crate) fn charge(&mut self, places: &[Place], cost: Duration) {
        let first = places.iter().map(|&place| self.served(place)).min();
        self.clock = self.clock.max(first.unwrap_or_default());
        let each = cost / places.len().max(1) as u32;
        for &place in places {
            if let Some(account) = self.accounts.get_mut(place) {
                account.served += each;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_millis(1);

    #[test]
    fn who_is_served_together_shares_the_cost() {
        let mut shares = Shares::default();
        let (one, other) = (shares.place(1000), shares.place(33));
        assert_eq!(shares.place(1000), one);
        shares.charge(&[one, other, other, other], 4 * COST);
        assert_eq!((shares.served(one), shares.served(other)), (COST, 3 * COST));
    }

    #[test]
    fn idleness_is_not_saved_up() {
        let mut shares = Shares::default();
        let (busy, quiet) = (shares.place(1), shares.place(2));
        for _ in 0..1000 {
            shares.charge(&[busy], COST);
        }
        shares.begin(quiet);
        let lead = shares.served(busy) - shares.served(quiet);
        assert_eq!(lead, SHARE_CREDIT + COST, "the clock is at the last start");
        assert!(shares.served(busy) > shares.served(quiet) + COST);
        // One that has never been here has nothing saved up at all.
        let new = shares.place(3);
        shares.begin(new);
        assert_eq!(shares.served(new), shares.served(busy) - COST);
    }
}
