//! A session with any settings, written in any pieces, flushed at any time: the client gets the
//! content.

#![no_main]

use std::io::Read;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use slipstream_compress::{Context, GZIP, Method, Mode, Offload, Session, Settings};
use slipstream_offload::pause::Never;

#[derive(Arbitrary, Debug)]
struct Response {
    level: u8,
    chunk_bytes: u16,
    stream_bytes: u32,
    threshold: u16,
    block_bytes: u16,
    is_in_software: bool,
    is_pipelined: bool,
    length: Option<u16>,
    actions: Vec<Action>,
}

#[derive(Arbitrary, Debug)]
enum Action {
    /// A byte, and the number of times that it is repeated.
    Run(u8, u16),
    Bytes(Vec<u8>),
    Flush,
    Take,
    /// The device comes or goes, although nothing here is one.
    Device(bool),
}

fuzz_target!(|response: Response| {
    let level = response.level % 9 + 1;
    let settings = Settings {
        method: Method::new(GZIP, level).expect("a level"),
        chunk_bytes: response.chunk_bytes.into(),
        stream_bytes: response.stream_bytes as usize % (1 << 20),
        threshold: response.threshold.into(),
        block_bytes: response.block_bytes.into(),
        offload: match response.is_in_software {
            true => Offload::Software,
            false => Offload::Failover,
        },
        mode: match response.is_pipelined {
            true => Mode::Pipelined,
            false => Mode::Asynchronous,
        },
    };
    let mut context = Context::new(4, 1 << 16);
    context.set_device(true);
    let mut session = Session::new(settings, response.length.map(u64::from), &mut context);
    let (mut content, mut output) = (Vec::new(), Vec::new());
    for action in response.actions {
        let bytes = match action {
            Action::Run(byte, length) => vec![byte; length.into()],
            Action::Bytes(bytes) => bytes,
            Action::Flush => {
                session.flush(&mut context, &Never);
                continue;
            }
            Action::Take => {
                output.extend(session.next_block().unwrap_or_default());
                continue;
            }
            Action::Device(is_present) => {
                context.set_device(is_present);
                continue;
            }
        };
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            let taken = session.write(&mut context, &Never, left);
            left = &left[taken..];
            let block = session.next_block();
            assert!(taken > 0 || block.is_some(), "stuck");
            output.extend(block.unwrap_or_default());
        }
        content.extend(bytes);
    }
    session.finish(&mut context, &Never);
    while let Some(block) = session.next_block() {
        output.extend(block);
    }
    assert!(session.is_complete());
    let mut back = Vec::new();
    flate2::read::GzDecoder::new(output.as_slice()).read_to_end(&mut back).expect("a gzip member");
    assert!(back == content);
});
