//! Reasons why our ratios differ from the paper's, figure by figure.

use super::{Configuration, Device, Figure};

/// Differences in every figure.
pub(super) const SETTING: &[&str] = &[
    "The software that is the baseline has become faster: the paper had OpenSSL 1.1.0g on a Xeon E5-2699 v4 of 2016. An \
     operation that OpenSSL does in less time is one that offloading gains less from.",
    "There is one worker with a core to itself. The paper's figures 7 to 9 vary the number of workers, two of which share a \
     physical core as its hyper-threads (its HT axis). This is not reproduced: the paper's ratios for the number of workers \
     that it names stand beside ours for one.",
    "Only RSA and elliptic-curve operations are offloaded; to a device, the generation of ephemeral keys too. The PRF of TLS \
     1.2, which the paper's card computes as well, stays in the worker.",
    "The clients are one process with a TLS client of its own, on the same machine, over loopback; the paper's are two \
     machines with up to 2000 processes over 40 Gbit/s Ethernet.",
];

/// Further differences that depend on the device.
pub(super) fn of_device(device: &str) -> &'static [&'static str] {
    match Device::find(device) {
        Some(Device::Paced) => &[
            ENGINE,
            "The engine releases no result before a DH8970 would have it. The latencies are published ones of the card, or \
             derived from such, for one of its three endpoints.",
        ],
        Some(Device::Engine) => &[
            ENGINE,
            "The engine answers as soon as it can: its latency is that of vector lanes and of a queue in shared memory, not \
             that of a card.",
        ],
        Some(Device::Lanes) | None => &[
            "There is no engine: offloaded operations are computed by the vector lanes of the worker's own core, in batches. \
             Nothing runs beside the worker: the gain is the difference between OpenSSL's code and the lanes'.",
        ],
    }
}

const ENGINE: &str = "The accelerator is an engine in software. It has no bus and no firmware. It computes \
    real results, and shares a core with the load generator: where the two together take most of that core (the column \
    \"load core\"), they are the limit and not the server.";

/// The reason why a configuration differs from the paper's in a figure.
pub(super) fn of(figure: Figure, configuration: Configuration) -> Option<&'static str> {
    match figure {
        Figure::FullHandshakes => full_handshakes(configuration),
        Figure::FullHandshakesTls13 => full_handshakes_tls13(configuration),
        Figure::Resumption => resumption(configuration),
        Figure::ResponseTime => response_time(configuration),
        Figure::Polling => polling(configuration),
    }
}

fn full_handshakes(configuration: Configuration) -> Option<&'static str> {
    Some(match configuration {
        Configuration::Software | Configuration::AsynchronousSlow => return None,
        Configuration::Straight => {
            "Each operation blocks the worker for its whole latency, so the ratio is about that of OpenSSL's time for the \
             operation to this latency. OpenSSL's time has become shorter since, the latency of a device has not. A \
             handshake with several operations waits several times."
        }
        Configuration::Asynchronous => {
            "The waits overlap, and what is left is the worker's own work. The polling thread wakes up to 100,000 times a \
             second on the worker's core, even if no response waits there, and each notification costs a write and an event."
        }
        Configuration::Heuristic => {
            "The worker fetches responses itself, when many operations are in flight or every active connection waits for one: \
             this saves the wake-ups of the polling thread. What a wake-up costs depends on kernel and virtualisation."
        }
        Configuration::Qtls => {
            "Notification through a queue saves a write and an event for each operation. The ratio to SW is bounded by the work \
             that cannot be offloaded: TLS messages, the PRF, TCP and connections. The slower \
             OpenSSL's own code is, as for P-384, the more there is to gain."
        }
        Configuration::Idle => {
            "Not in the paper: polls when nginx is about to wait for events, after all operations have been submitted."
        }
        Configuration::Hybrid => {
            "Not in the paper: polls for a while, then sleeps until the engine signals, so that an idle worker takes no CPU."
        }
    })
}

fn full_handshakes_tls13(configuration: Configuration) -> Option<&'static str> {
    match configuration {
        Configuration::Qtls => Some(
            "HKDF stays in the worker, in the paper as here. The module computes it with its own code and not with OpenSSL's, \
             which fetches algorithms by name for each step.",
        ),
        Configuration::Straight => Some(
            "As in figure 7: each operation blocks the worker. The paper gives no number for it.",
        ),
        _ => None,
    }
}

fn resumption(configuration: Configuration) -> Option<&'static str> {
    match configuration {
        Configuration::Qtls => Some(
            "An abbreviated handshake has no public-key operation. The paper offloads its PRF; here the worker computes it, so \
             at 100% nothing is offloaded, and the difference from SW is the module's own PRF and its handling in nginx. In a \
             mixture the full handshakes gain as in figure 7b. Sessions are resumed with tickets, which a plain nginx gives; \
             the paper's s_time takes tickets too where a server gives them.",
        ),
        Configuration::Straight => Some(
            "In the paper each offloaded PRF blocks the worker. Here no operation of an abbreviated handshake leaves \
             the worker: at 100% the ratio shows what the polling thread costs.",
        ),
        _ => None,
    }
}

fn response_time(configuration: Configuration) -> Option<&'static str> {
    match configuration {
        Configuration::Straight => Some(
            "With one connection nothing is lost by waiting for its operation, and nothing is fetched sooner. With many, each \
             waits for those before it.",
        ),
        Configuration::Asynchronous => Some(
            "With one connection a response waits for the next tick of the polling thread and for the event that follows. With \
             64, response time is concurrency over throughput, and the ratio is that of figure 7.",
        ),
        Configuration::Qtls => Some(
            "With one connection the worker polls as soon as the only active connection waits. With 64, response time is \
             concurrency over throughput, and the ratio is that of figure 7; it includes the request and the response.",
        ),
        _ => None,
    }
}

fn polling(configuration: Configuration) -> Option<&'static str> {
    match configuration {
        Configuration::Asynchronous => Some(
            "The gap is the CPU time of wake-ups that find nothing. How long a timer of 10 µs really takes depends on the \
             kernel's timer slack and on virtualisation, which also lengthens each context switch.",
        ),
        Configuration::AsynchronousSlow => Some(
            "A response waits for up to 1 ms. With few connections all of them wait at the same time and the worker is idle; \
             with many there is enough to fetch at each tick, and the thread costs little.",
        ),
        _ => None,
    }
}
