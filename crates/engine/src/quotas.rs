//! The most that users may have of an engine: each for itself, and all but root together.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::lock;

/// The most of each resource that one user may have, however many connections it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Connections that are open.
    pub connections: usize,
    /// Connections that have an instance.
    pub instances: usize,
    /// Private keys, in all sessions.
    pub keys: usize,
    /// Memory of instances, in bytes.
    pub memory: usize,
}

impl Quotas {
    /// The most that all users may have together.
    pub const TOTAL: Self = Self {
        connections: 1024,
        instances: 1024,
        keys: 8192,
        memory: 4 << 30,
    };

    /// The part of the total that is kept for root.
    pub const RESERVE: Self = Self {
        connections: 64,
        instances: 64,
        keys: 1024,
        memory: 256 << 20,
    };

    fn of(&self, resource: Resource) -> usize {
        match resource {
            Resource::Connections => self.connections,
            Resource::Instances => self.instances,
            Resource::Keys => self.keys,
            Resource::Memory => self.memory,
        }
    }
}

/// Half of the total.
impl Default for Quotas {
    fn default() -> Self {
        Self {
            connections: Self::TOTAL.connections / 2,
            instances: Self::TOTAL.instances / 2,
            keys: Self::TOTAL.keys / 2,
            memory: Self::TOTAL.memory / 2,
        }
    }
}

/// A resource that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    Connections,
    Instances,
    Keys,
    Memory,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Connections => "connections",
            Resource::Instances => "instances",
            Resource::Keys => "keys",
            Resource::Memory => "bytes of memory for rings and buffers",
        })
    }
}

/// The account of what each user has.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    quotas: Quotas,
    taken: Arc<Mutex<HashMap<(u32, Resource), usize>>>,
}

/// A part of a resource that a user has until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    ledger: Ledger,
    user: u32,
    resource: Resource,
    amount: usize,
}

const ROOT: u32 = 0;

impl Ledger {
    pub(crate) fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            taken: Arc::default(),
        }
    }

    /// Gives `user` some of a resource.
    ///
    /// # Errors
    /// The reason why it gets no more. Root is bound by the total only.
    pub(crate) fn take(
        &self,
        user: u32,
        resource: Resource,
        amount: usize,
    ) -> Result<Share, String> {
        let mut taken = lock(&self.taken);
        let own = taken.get(&(user, resource)).copied().unwrap_or(0);
        let quota = self.quotas.of(resource);
        if user != ROOT && own.saturating_add(amount) > quota {
            return Err(format!(
                "user {user} has {own} {resource} of the engine's, and may have {quota}"
            ));
        }
        let reserve = match user {
            ROOT => 0,
            _ => Quotas::RESERVE.of(resource),
        };
        let total = Quotas::TOTAL.of(resource) - reserve;
        let counted = |&(&(other, kind), _): &(&(u32, Resource), &usize)| {
            kind == resource && (user == ROOT || other != ROOT)
        };
        let all: usize = taken.iter().filter(counted).map(|(_, amount)| amount).sum();
        if all.saturating_add(amount) > total {
            return Err(format!("the engine has no more {resource} for user {user}"));
        }
        taken.insert((user, resource), own + amount);
        Ok(Share {
            ledger: self.clone(),
            user,
            resource,
            amount,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.ledger.taken);
        let place = (self.user, self.resource);
        if let Some(own) = taken.get_mut(&place) {
            *own -= self.amount;
            if *own == 0 {
                taken.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(Quotas::default())
    }

    #[test]
    fn a_user_gets_as_much_as_its_quota() {
        let ledger = ledger();
        let most = Quotas::default().keys;
        let take = |user, amount| ledger.take(user, Resource::Keys, amount);
        let own = take(1, most - 1).expect("room");
        let last = take(1, 1).expect("room");
        let refused = take(1, 1).expect_err("no more room");
        assert!(refused.contains("user 1 has 4096 keys"), "{refused}");
        take(2, 1).expect("another user");
        ledger
            .take(1, Resource::Memory, 1)
            .expect("another resource");
        drop(last);
        take(1, 1).expect("room again");
        drop(own);
        take(1, most).expect("room again");
        assert!(take(1, usize::MAX).is_err());
    }

    #[test]
    fn users_leave_something_for_root() {
        let ledger = ledger();
        let take = |user, amount| ledger.take(user, Resource::Connections, amount);
        let (total, reserve) = (Quotas::TOTAL.connections, Quotas::RESERVE.connections);
        let _one = take(1, total / 2).expect("its quota");
        let _other = take(2, total / 2 - reserve).expect("less than its quota");
        let refused = take(3, 1).expect_err("the reserve is root's");
        assert!(refused.contains("no more connections"), "{refused}");
        let _root = take(ROOT, reserve).expect("its reserve");
        assert!(take(ROOT, 1).is_err(), "there is no more");
    }
}
