//! OpenSSL's own asynchronous jobs: servers with an asynchronous mode.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io::{self, Read, Write};
use std::rc::Rc;

use foreign_types_shared::ForeignTypeRef;
use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    ErrorCode, HandshakeError, MidHandshakeSslStream, Ssl, SslContext, SslContextBuilder,
    SslMethod, SslMode, SslStream, SslVerifyMode, SslVersion,
};
use openssl::x509::{X509, X509Name};
use openssl_sys as sys;
use slipstream_accelerators::lanes::Backend;
use slipstream_openssl::lane_operations;

use crate::common::{Context, DEFAULT, SLIPSTREAM, exclusive, import, install, keys};

/// `ASYNC_JOB` and `ASYNC_WAIT_CTX`.
enum AsyncJob {}
enum WaitContext {}

unsafe extern "C" {
    fn ASYNC_start_job(
        job: *mut *mut AsyncJob,
        wait: *mut WaitContext,
        result: *mut c_int,
        function: unsafe extern "C" fn(*mut c_void) -> c_int,
        argument: *mut c_void,
        size: usize,
    ) -> c_int;
    fn ASYNC_WAIT_CTX_new() -> *mut WaitContext;
    fn ASYNC_WAIT_CTX_free(wait: *mut WaitContext);
    fn ASYNC_WAIT_CTX_get_all_fds(
        wait: *mut WaitContext,
        descriptors: *mut c_int,
        count: *mut usize,
    ) -> c_int;
    fn SSL_get_all_async_fds(
        ssl: *mut sys::SSL,
        descriptors: *mut c_int,
        count: *mut usize,
    ) -> c_int;
}

pub const ASYNC_PAUSE: c_int = 2;
pub const ASYNC_FINISH: c_int = 3;
/// `SSL_ERROR_WANT_ASYNC`.
const WANT_ASYNC: c_int = 9;
/// `SSL_MODE_ASYNC`.
const MODE_ASYNC: i64 = 0x100;

struct Work {
    library: *mut c_void,
    key: PKey<Private>,
    hash: [u8; 32],
    signatures: usize,
    signature: Vec<u8>,
}

unsafe extern "C" fn sign(argument: *mut c_void) -> c_int {
    // SAFETY: the argument is a copy of a pointer to work that outlives the job.
    let work = unsafe { &mut **argument.cast::<*mut Work>() };
    let context =
        Context::within(work.library, &work.key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
    for _ in 0..work.signatures {
        match context.sign(&work.hash, 256) {
            Ok(signature) => work.signature = signature,
            Err(_) => return 0,
        }
    }
    1
}

/// A job that signs.
pub struct Job {
    job: *mut AsyncJob,
    wait: *mut WaitContext,
    work: Box<Work>,
}

impl Job {
    fn new(der: &[u8], seed: u8) -> Self {
        Self::with(std::ptr::null_mut(), import(der), seed)
    }

    /// In a library context.
    pub fn with(library: *mut c_void, key: PKey<Private>, seed: u8) -> Self {
        // SAFETY: no preconditions.
        let wait = unsafe { ASYNC_WAIT_CTX_new() };
        let work = Box::new(Work {
            library,
            key,
            hash: [seed; 32],
            signatures: 1,
            signature: Vec::new(),
        });
        Self {
            job: std::ptr::null_mut(),
            wait,
            work,
        }
    }

    /// Starts or resumes it.
    pub fn run(&mut self) -> c_int {
        let mut result = 0;
        let mut work: *mut Work = &mut *self.work;
        let argument = (&raw mut work).cast();
        // SAFETY: the argument, a pointer to the work, is copied; the work outlives the job.
        let status = unsafe {
            let size = size_of::<*mut Work>();
            ASYNC_start_job(&mut self.job, self.wait, &mut result, sign, argument, size)
        };
        assert!(status != ASYNC_FINISH || result == 1);
        status
    }

    fn descriptors(&self) -> Vec<c_int> {
        let mut count = 0;
        // SAFETY: first only the number is asked for, then there is room for as many.
        unsafe {
            assert_eq!(
                ASYNC_WAIT_CTX_get_all_fds(self.wait, std::ptr::null_mut(), &mut count),
                1
            );
            let mut descriptors = vec![-1; count];
            ASYNC_WAIT_CTX_get_all_fds(self.wait, descriptors.as_mut_ptr(), &mut count);
            descriptors
        }
    }

    pub fn verify(&self) {
        let context = Context::within(self.work.library, &self.work.key, DEFAULT);
        let verifier = context.verifying(&[(c"digest", c"SHA256")]);
        assert!(verifier.verify(&self.work.signature, &self.work.hash));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // SAFETY: owned, and no job uses it any more.
        unsafe { ASYNC_WAIT_CTX_free(self.wait) };
    }
}

fn is_readable(descriptor: c_int) -> bool {
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, as said.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}

fn is_open(descriptor: c_int) -> bool {
    // SAFETY: asks for flags.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) != -1 }
}

#[test]
fn jobs_pause_and_are_computed_together() {
    let _turn = exclusive();
    for backend in Backend::available() {
        install(backend);
        let before = lane_operations();
        let mut jobs: Vec<Job> = (0..11)
            .map(|job| Job::new(&keys()[job % 3], job as u8))
            .collect();
        for job in &mut jobs {
            assert_eq!(job.run(), ASYNC_PAUSE);
            let [descriptor] = job.descriptors()[..] else {
                panic!("one descriptor")
            };
            assert!(is_readable(descriptor), "the server is told to come back");
        }
        assert_eq!(
            lane_operations(),
            before,
            "nothing is computed while others may join"
        );
        for job in &mut jobs {
            assert_eq!(job.run(), ASYNC_FINISH);
            job.verify();
            let [descriptor] = job.descriptors()[..] else {
                panic!("one descriptor")
            };
            assert!(!is_readable(descriptor) && is_open(descriptor));
        }
        assert_eq!(lane_operations() - before, 11);
        let fills = slipstream_offload::instance::with(|instance| instance.counters().fill);
        let fills = fills.expect("an instance");
        assert_eq!(
            (fills[7], fills[2]),
            (1, 1),
            "a batch of eight and one of three"
        );
        slipstream_offload::instance::uninstall();
    }
}

#[test]
fn what_a_resumed_job_asks_next_waits_for_others() {
    let _turn = exclusive();
    install(Backend::Portable);
    let mut jobs: Vec<Job> = (0..8)
        .map(|job| Job::new(&keys()[job % 3], job as u8))
        .collect();
    for job in &mut jobs {
        job.work.signatures = 2;
    }
    for expected in [ASYNC_PAUSE, ASYNC_PAUSE, ASYNC_FINISH] {
        for job in &mut jobs {
            assert_eq!(job.run(), expected);
        }
    }
    jobs.iter().for_each(Job::verify);
    let fills = slipstream_offload::instance::with(|instance| instance.counters().fill);
    assert_eq!(
        fills,
        Some([0, 0, 0, 0, 0, 0, 0, 2]),
        "two batches of eight"
    );
    slipstream_offload::instance::uninstall();
}

#[test]
fn the_descriptor_is_kept_for_the_next_job_and_closed_with_the_wait_context() {
    let _turn = exclusive();
    install(Backend::Portable);
    let mut job = Job::new(&keys()[0], 1);
    assert_eq!(job.run(), ASYNC_PAUSE);
    let descriptors = job.descriptors();
    assert_eq!(job.run(), ASYNC_FINISH);
    job.job = std::ptr::null_mut();
    assert_eq!(job.run(), ASYNC_PAUSE);
    assert_eq!(job.descriptors(), descriptors);
    assert_eq!(job.run(), ASYNC_FINISH);
    drop(job);
    assert!(!is_open(descriptors[0]));
    slipstream_offload::instance::uninstall();
}

#[test]
fn a_server_in_asynchronous_mode_serves_handshakes_from_lanes() {
    let _turn = exclusive();
    let backend = Backend::detect().unwrap_or(Backend::Portable);
    install(backend);
    let suites = [
        (SslVersion::TLS1_3, "ECDHE-RSA-AES128-GCM-SHA256", 2),
        (SslVersion::TLS1_2, "ECDHE-RSA-AES128-GCM-SHA256", 2),
        (SslVersion::TLS1_2, "AES128-GCM-SHA256", 1),
    ];
    for (version, suite, operations) in suites {
        for der in &keys()[2..] {
            let mut server = server_builder(&import(der), version, suite);
            set_asynchronous(&mut server);
            let server = server.build();
            let client = client_builder().build();
            let before = lane_operations();
            let mut connections: Vec<Connection> =
                (0..5).map(|_| Connection::new(&server, &client)).collect();
            let mut paused = 0;
            while connections
                .iter()
                .any(|connection| !connection.is_established())
            {
                for connection in &mut connections {
                    paused += usize::from(connection.step());
                }
            }
            assert_eq!(lane_operations() - before, 5 * operations, "{suite}");
            assert_eq!(paused as u64, 5 * operations, "each operation pauses once");
            connections.into_iter().for_each(Connection::exchange);
        }
    }
    slipstream_offload::instance::uninstall();
}

/// Has OpenSSL run the handshakes of connections in asynchronous jobs.
pub fn set_asynchronous(context: &mut SslContextBuilder) {
    context.set_mode(SslMode::from_bits_retain(MODE_ASYNC));
}

/// A server.
pub fn server_builder(key: &PKey<Private>, version: SslVersion, suite: &str) -> SslContextBuilder {
    let mut context = SslContext::builder(SslMethod::tls_server()).expect("a context");
    context.set_private_key(key).expect("a key");
    context
        .set_certificate(&certificate(key))
        .expect("a certificate");
    context
        .set_min_proto_version(Some(version))
        .expect("a version");
    context
        .set_max_proto_version(Some(version))
        .expect("a version");
    context.set_cipher_list(suite).expect("a suite");
    context
}

/// A client that verifies nothing.
pub fn client_builder() -> SslContextBuilder {
    let mut context = SslContext::builder(SslMethod::tls_client()).expect("a context");
    context.set_verify(SslVerifyMode::NONE);
    context.set_cipher_list("ALL").expect("suites");
    context
}

/// A certificate of `key` that is signed with it.
pub fn certificate(key: &PKey<Private>) -> X509 {
    let mut name = X509Name::builder().expect("a name");
    name.append_entry_by_text("CN", "test").expect("a name");
    let name = name.build();
    let mut certificate = X509::builder().expect("a certificate");
    let (from, to) = (Asn1Time::days_from_now(0), Asn1Time::days_from_now(1));
    certificate.set_version(2).expect("a version");
    certificate.set_subject_name(&name).expect("a name");
    certificate.set_issuer_name(&name).expect("a name");
    certificate
        .set_not_before(&from.expect("a date"))
        .expect("a date");
    certificate
        .set_not_after(&to.expect("a date"))
        .expect("a date");
    certificate.set_pubkey(key).expect("a key");
    certificate
        .sign(key, MessageDigest::sha256())
        .expect("a signature");
    certificate.build()
}

type Bytes = Rc<RefCell<VecDeque<u8>>>;

/// One end of a connection in memory.
#[derive(Debug)]
struct Pipe {
    incoming: Bytes,
    outgoing: Bytes,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.incoming.borrow_mut().read(buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.outgoing.borrow_mut().extend(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum End {
    Shaking(MidHandshakeSslStream<Pipe>),
    Established(SslStream<Pipe>),
}

impl End {
    fn from(result: Result<SslStream<Pipe>, HandshakeError<Pipe>>) -> Self {
        match result {
            Ok(stream) => Self::Established(stream),
            Err(HandshakeError::WouldBlock(stream) | HandshakeError::Failure(stream)) => {
                let code = stream.error().code();
                let expected = [ErrorCode::WANT_READ, ErrorCode::from_raw(WANT_ASYNC)];
                assert!(expected.contains(&code), "{:?}", stream.error());
                Self::Shaking(stream)
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn step(self) -> Self {
        match self {
            Self::Shaking(stream) => Self::from(stream.handshake()),
            established => established,
        }
    }

    /// Whether it waits for its operation, and is told so by its descriptor.
    fn is_paused(&self) -> bool {
        let Self::Shaking(stream) = self else {
            return false;
        };
        if stream.error().code().as_raw() != WANT_ASYNC {
            return false;
        }
        let (mut descriptor, mut count) = (-1, 0);
        let ssl = stream.ssl().as_ptr();
        // SAFETY: first only the number is asked for, which is one.
        unsafe {
            assert_eq!(
                SSL_get_all_async_fds(ssl, std::ptr::null_mut(), &mut count),
                1
            );
            assert_eq!(count, 1);
            assert_eq!(SSL_get_all_async_fds(ssl, &mut descriptor, &mut count), 1);
        }
        assert!(is_readable(descriptor));
        true
    }
}

/// A connection in memory, with both its ends.
pub struct Connection {
    server: Option<End>,
    client: Option<End>,
}

impl Connection {
    pub fn new(server: &SslContext, client: &SslContext) -> Self {
        let (up, down) = (Bytes::default(), Bytes::default());
        let client_pipe = Pipe {
            incoming: down.clone(),
            outgoing: up.clone(),
        };
        let server_pipe = Pipe {
            incoming: up,
            outgoing: down,
        };
        let client = Ssl::new(client).expect("a connection").connect(client_pipe);
        let server = Ssl::new(server).expect("a connection").accept(server_pipe);
        Self {
            server: Some(End::from(server)),
            client: Some(End::from(client)),
        }
    }

    pub fn is_established(&self) -> bool {
        [&self.server, &self.client]
            .iter()
            .all(|end| matches!(end, Some(End::Established(_))))
    }

    /// Goes on as far as possible; true if the server has been waiting for its operation.
    pub fn step(&mut self) -> bool {
        let was_paused = self.server.as_ref().is_some_and(End::is_paused);
        self.server = self.server.take().map(End::step);
        self.client = self.client.take().map(End::step);
        was_paused
    }

    pub fn exchange(self) {
        let (Some(End::Established(mut server)), Some(End::Established(mut client))) =
            (self.server, self.client)
        else {
            panic!("not established");
        };
        client.write_all(b"request").expect("room");
        let mut received = [0; 7];
        server.read_exact(&mut received).expect("a request");
        assert_eq!(&received, b"request");
    }
}
