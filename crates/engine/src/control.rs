//! The thread that listens and answers messages. No client can block it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::Shared;
use crate::connection::{Connection, Next, Sessions};
use crate::counters::{count, uncount};
use crate::listener::Listener;
use crate::session::Session;

/// The time for which no connection is accepted after the system had no descriptor for one.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

const EVENTS: usize = 64;
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// The listening socket and the connections.
pub(crate) struct Control {
    listener: Listener,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    /// The key by which epoll knows the next connection.
    next: u64,
    sessions: Sessions,
    /// Sessions whose owners have gone, with the time of their end, in this order.
    orphans: VecDeque<(Instant, Weak<Session>)>,
    /// The time from the end of an owner to that of its session.
    grace: Duration,
    is_paused: bool,
}

impl Control {
    pub(crate) fn new(
        listener: Listener,
        shared: Arc<Shared>,
        grace: Duration,
    ) -> io::Result<Self> {
        let control = Self {
            listener,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            shared,
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            sessions: Sessions::new(),
            orphans: VecDeque::new(),
            grace,
            is_paused: false,
        };
        control.watch(&control.listener, LISTENER)?;
        control.watch(&control.shared.stop, STOP)?;
        Ok(control)
    }

    /// Serves clients until the engine stops.
    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        while !self.shared.is_stopping() {
            events.clear();
            let timeout = self.timeout();
            let space = rustix::buffer::spare_capacity(&mut events);
            // An interruption is no event. No other error can happen to a descriptor of our own.
            let _ = epoll::wait(&self.epoll, space, timeout.as_ref());
            self.end_sessions();
            if self.is_paused {
                self.is_paused = self.watch(&self.listener, LISTENER).is_err();
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    STOP => return,
                    name => self.serve(name),
                }
            }
        }
    }

    /// Returns the time for which this thread may sleep; `None` for ever.
    fn timeout(&self) -> Option<Timespec> {
        let pause = self.is_paused.then_some(PAUSE);
        let orphan = self.orphans.front().map(|(end, _)| {
            let left = end.saturating_duration_since(Instant::now());
            Timespec::try_from(left).unwrap_or(PAUSE)
        });
        pause.into_iter().chain(orphan).min()
    }

    /// Ends the sessions whose owners have gone long ago.
    fn end_sessions(&mut self) {
        let now = Instant::now();
        while self.orphans.front().is_some_and(|(end, _)| *end <= now) {
            let orphan = self.orphans.pop_front();
            if let Some(session) = orphan.and_then(|(_, session)| session.upgrade()) {
                session.end();
            }
        }
    }

    fn watch(&self, descriptor: impl AsFd, name: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(name);
        Ok(epoll::add(
            &self.epoll,
            descriptor,
            data,
            epoll::EventFlags::IN,
        )?)
    }

    fn accept(&mut self) {
        let (socket, user, is_allowed) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return,
            Err(_) => {
                // Without descriptors the listener would stay readable, and this thread would not
                // sleep.
                self.is_paused = epoll::delete(&self.epoll, &self.listener).is_ok();
                return;
            }
        };
        let mut connection = Connection::new(socket, user, self.shared.clone());
        if !is_allowed {
            count(self.shared.counters.foreign_users);
            return connection
                .refuse("this user may not use the engine; start it with --allow for them");
        }
        if let Err(reason) = connection.take_place() {
            count(self.shared.counters.refused_messages);
            return connection.refuse(&reason);
        }
        let name = self.next;
        if self.watch(&connection, name).is_ok() {
            self.next += 1;
            self.connections.insert(name, connection);
            count(self.shared.counters.accepted);
            count(self.shared.counters.connections);
        }
    }

    /// Serves one message, so that each connection has its turn.
    fn serve(&mut self, name: u64) {
        let Some(connection) = self.connections.get_mut(&name) else {
            return;
        };
        if connection.serve(&mut self.sessions) == Next::Close {
            // Explicitly, since a batch that is being computed keeps the socket open a little
            // longer.
            let _ = epoll::delete(&self.epoll, &*connection);
            if let Some(session) = connection.owned() {
                let end = Instant::now() + self.grace;
                self.orphans.push_back((end, Arc::downgrade(session)));
            }
            self.connections.remove(&name);
            uncount(self.shared.counters.connections);
        }
    }
}
