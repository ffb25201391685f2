//! The master's side: the provider, the private keys of the configuration, and the costs of lanes.
//!
//! It runs once, before workers are forked, so that no worker pays for it.

use std::convert::Infallible;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use nginx_sys::{
    ERR_clear_error, EVP_DigestSignInit_ex, EVP_MD_CTX_free, EVP_MD_CTX_new, EVP_MD_fetch,
    EVP_MD_free, EVP_PKEY, EVP_PKEY_is_a, EVP_default_properties_is_fips_enabled,
    EVP_set_default_properties, NGX_OK, SSL_CTX, ngx_core_conf_t, ngx_core_module, ngx_cycle_t,
    ngx_int_t, ngx_test_config,
};
use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_accelerators::lanes::{
    self, Backend, LaneCosts, Lanes, Measured, calibrate, machine, precomputed, prove,
};
use slipstream_compress::Method;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_openssl::Accelerators;

use crate::config;
use crate::directives::{self, CoreConf, Offload};
use crate::log::{self, Level};
use crate::nginx::CONF_ERROR;
use crate::openssl::{OSSL_PROVIDER_add_builtin, OSSL_PROVIDER_load, each_private_key};
use crate::servers::Servers;
use crate::{assumptions, gate, gzip, isolation, metrics};

/// The preparations of the master for its workers.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    /// The lanes; `None` if only a device computes.
    pub(crate) backend: Option<Backend>,
    pub(crate) measured: Measured,
    /// The token with which workers may use the keys that the master has registered at the device.
    pub(crate) token: Option<Token>,
    /// Servers of http have TLS.
    pub(crate) has_http: bool,
    pub(crate) stream: Stream,
}

/// The part that servers of stream take. Those with `slipstream off` are on fibers, too: that is
/// where their operations are told from those of others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// No server takes TLS.
    Absent,
    /// No server has `slipstream on`.
    Disabled,
    /// A server has `slipstream on`.
    Enabled,
}

/// `None` where handshakes are left to nginx.
pub(crate) fn prepared() -> Option<Prepared> {
    *PREPARED.lock().expect("no panic while it is locked")
}

/// The preparations for the configuration that was read last; workers are forked after that.
static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

/// Called in the master when a configuration has been read, and by `nginx -t`.
pub(crate) unsafe extern "C" fn init_module(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    // SAFETY: nginx passes the new cycle, in its one thread.
    unsafe {
        if ngx_test_config != 0 {
            announce(cycle);
            return NGX_OK as ngx_int_t;
        }
        let needs = gzip::needs(cycle);
        if needs.compresses {
            share_metrics(cycle);
            log::write(
                (*cycle).log,
                Level::Notice,
                format_args!(
                    "responses are compressed by {}",
                    Method::DEFAULT.implementation()
                ),
            );
        }
        if needs.asks_for_device && config::core_conf(cycle).device.is_none() {
            log::write(
                (*cycle).log,
                Level::Warning,
                "\"slipstream_gzip_offload device\" without a \"device\" in the slipstream block, \
                 responses are compressed in the worker",
            );
        }
        let token = isolation::adopt();
        let servers = Servers::of(cycle);
        let prepared = if servers.any_enabled() || token.is_some() {
            match prepare(cycle, &servers, token) {
                Ok(prepared) => Some(prepared),
                Err(reason) => {
                    log::write(
                        (*cycle).log,
                        Level::Warning,
                        format_args!("{reason}, handshakes are served as without the module"),
                    );
                    share_metrics(cycle);
                    metrics::note(&reason);
                    None
                }
            }
        } else {
            metrics::note("no server has \"slipstream on\"");
            None
        };
        prefer_provider(prepared.is_some());
        *PREPARED.lock().expect("no panic while it is locked") = prepared;
    }
    NGX_OK as ngx_int_t
}

/// Makes the figures of workers, and says so if they cannot be published.
///
/// # Safety
/// `cycle` is a cycle whose configuration has been read.
unsafe fn share_metrics(cycle: *mut ngx_cycle_t) {
    // SAFETY: by the caller's promise; nginx's core module has a configuration in every cycle. Its
    // group is that of the workers if the master is root.
    let group = unsafe {
        let core = *(*cycle)
            .conf_ctx
            .add((&raw const ngx_core_module.index).read());
        let group = (*core.cast::<ngx_core_conf_t>()).group;
        (libc::geteuid() == 0).then_some(group)
    };
    if let Err(reason) = metrics::share(group) {
        // SAFETY: the cycle's log.
        unsafe {
            log::write(
                (*cycle).log,
                Level::Notice,
                format_args!("`slipstream status` does not show this nginx: {reason}"),
            );
        }
    }
}

/// Called when a configuration has been read, before it is used. With `keys isolated`, an error
/// here counts as an error of the configuration: nginx does not start, or keeps the old one. (After
/// an error of `init_module` nginx's master ends.)
pub(crate) unsafe extern "C" fn init_conf(
    cycle: *mut ngx_cycle_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes the new cycle, and what `create_core_conf` has made for it.
    unsafe {
        let conf = *conf.cast::<CoreConf>();
        if !conf.keys_are_isolated || ngx_test_config != 0 {
            return std::ptr::null_mut();
        }
        match isolate(cycle, &conf) {
            Ok(()) => std::ptr::null_mut(),
            Err(message) => {
                log::write(
                    (*cycle).log,
                    Level::Emergency,
                    format_args!("\"keys isolated\": {message}"),
                );
                CONF_ERROR
            }
        }
    }
}

/// # Safety
/// `cycle` is a cycle of which http's configuration has been read.
unsafe fn isolate(cycle: *mut ngx_cycle_t, conf: &CoreConf) -> Result<(), String> {
    let path = conf.device.ok_or("needs a \"device\"")?;
    // SAFETY: by the caller's promise; nginx's core module has a configuration in every cycle.
    let has_master = unsafe {
        let core = *(*cycle)
            .conf_ctx
            .add((&raw const ngx_core_module.index).read());
        (*core.cast::<ngx_core_conf_t>()).master != 0
    };
    if !has_master {
        return Err(
            "workers need a master that keeps the keys from them: \"master_process on\"".into(),
        );
    }
    let previous = slipstream_openssl::set_accelerators(Some(Accelerators {
        backend: choose_backend(conf)?.map(first_backend),
        has_device: true,
    }));
    let isolated = load_provider().and_then(|()| {
        // SAFETY: by the caller's promise; the provider has been loaded.
        unsafe {
            let servers = Servers::of(cycle);
            servers.check_http()?;
            servers.check_stream()?;
            isolation::isolate(path, &conf.engine_user(), &servers.contexts())
        }
    });
    if isolated.is_err() {
        // The configuration before stays in use, and workers that are started for it later.
        slipstream_openssl::set_accelerators(previous);
    }
    isolated
}

/// Prepares everything that the workers use. The error is one line with the reason why they use
/// nothing.
///
/// # Safety
/// `cycle` is a cycle whose configuration has been read, with these servers.
unsafe fn prepare(
    cycle: *mut ngx_cycle_t,
    servers: &Servers,
    token: Option<Token>,
) -> Result<Prepared, String> {
    if let Some(notice) = assumptions::untested() {
        // SAFETY: the cycle's log.
        unsafe { log::write((*cycle).log, Level::Notice, format_args!("{notice}")) };
    }
    // SAFETY: by the caller's promise.
    let conf = unsafe { config::core_conf(cycle) };
    let chosen = plan(&conf, servers)?;
    let backend = chosen.map(first_backend);
    if let Some(used) = backend
        && backend != chosen
    {
        // SAFETY: the cycle's log.
        unsafe {
            log::write(
                (*cycle).log,
                Level::Warning,
                format_args!(
                    "{} lanes stay in use until nginx is restarted: its keys are prepared for them",
                    used.name()
                ),
            );
        }
    }
    slipstream_openssl::set_accelerators(Some(Accelerators {
        backend,
        has_device: conf.device.is_some(),
    }));
    load_provider()?;
    prefer_provider(true);
    // SAFETY: by the caller's promise.
    unsafe { share_metrics(cycle) };
    match servers.check_stream() {
        Ok(()) => metrics::note(""),
        Err(reason) => {
            let reason = format!("{reason}, handshakes of stream are served as without the module");
            metrics::note(&reason);
            // SAFETY: the cycle's log.
            unsafe { log::write((*cycle).log, Level::Warning, format_args!("{reason}")) };
        }
    }
    let mut keys = 0;
    for &context in &servers.http.contexts {
        // SAFETY: by the caller's promise the context is valid; the module is never unloaded.
        unsafe { gate::arm(context) };
    }
    for context in servers.contexts() {
        // SAFETY: by the caller's promise the context is valid.
        keys += unsafe { bring_keys(context) };
    }
    if let Some(complaint) = backend.and_then(prove) {
        // SAFETY: the cycle's log.
        unsafe { log::write((*cycle).log, Level::Alert, complaint) };
    }
    let measured = measure(backend, conf.flush)?;
    if let Some(backend) = backend {
        precomputed::prepare_tables(backend);
    }
    // Workers may not be allowed to.
    let is_generation_seen = machine::find();
    if conf.nonces_ahead > 0 && !is_generation_seen {
        let warning = "nonces_ahead: nothing tells workers if this machine is cloned or restored, \
                       which reveals ECDSA keys";
        // SAFETY: the cycle's log.
        unsafe { log::write((*cycle).log, Level::Warning, format_args!("{warning}")) };
    }
    let accelerators = match backend {
        Some(backend) => format!(
            "{} lanes, {keys} keys, {}",
            backend.name(),
            batches(backend, &measured, conf.flush)
        ),
        None => format!("no lanes, {keys} keys, operations go to the device"),
    };
    // SAFETY: the cycle's log.
    unsafe { log::write((*cycle).log, Level::Notice, format_args!("{accelerators}")) };
    Ok(Prepared {
        backend,
        measured,
        token,
        has_http: !servers.http.contexts.is_empty(),
        stream: match (
            servers.stream.contexts.as_slice(),
            servers.stream.any_enabled,
        ) {
            ([], _) => Stream::Absent,
            (_, false) => Stream::Disabled,
            (_, true) => Stream::Enabled,
        },
    })
}

/// Decides which lanes compute for `servers`; `None` if only a device does.
///
/// # Errors
/// The reason why nothing is accelerated.
fn plan(conf: &CoreConf, servers: &Servers) -> Result<Option<Backend>, String> {
    servers.check_http()?;
    if conf.offload == Offload::Software {
        return Err("\"offload software\"".into());
    }
    choose_backend(conf)
}

/// Tells who tests a configuration what the module would do with it: with nginx's usual
/// `error_log`, nobody sees the notices and warnings of a start.
///
/// # Safety
/// `cycle` is a cycle whose configuration has been read.
unsafe fn announce(cycle: *mut ngx_cycle_t) {
    // SAFETY: by the caller's promise.
    let (servers, conf) = unsafe { (Servers::of(cycle), config::core_conf(cycle)) };
    if !servers.any_enabled() {
        return;
    }
    let planned = plan(&conf, &servers).and_then(|backend| load_provider().map(|()| backend));
    let (level, message) = match (planned, conf.device) {
        (Err(reason), _) => (
            Level::Warning,
            format!("{reason}, handshakes are served as without the module"),
        ),
        (Ok(_), _) if servers.contexts().is_empty() => (
            Level::Warning,
            "no server has TLS, there is nothing to accelerate".to_owned(),
        ),
        (Ok(_), Some(path)) => (
            Level::Notice,
            format!(
                "handshakes are accelerated by the device {}",
                path.display()
            ),
        ),
        (Ok(backend), None) => (
            Level::Notice,
            format!(
                "handshakes are accelerated by {} lanes",
                backend.map_or("no", Backend::name)
            ),
        ),
    };
    match level {
        Level::Notice => log::tell(message),
        // SAFETY: the log in which nginx reports errors of the configuration: that of the cycle
        // before, which is there until the test has ended. This cycle's own is the `error_log`.
        _ => unsafe { log::write((*(*cycle).old_cycle).log, level, message) },
    }
}

/// Describes the number of operations of each kind from which a batch is run.
fn batches(backend: Backend, measured: &Measured, flush: FlushPolicy) -> String {
    let scheduler = Scheduler {
        flush,
        software: measured.software,
    };
    let lanes = Lanes::new(lanes::Options {
        backend,
        costs: measured.lanes,
        scheduler: scheduler.clone(),
        has_batches: true,
        key_pairs: 0,
        nonces: 0,
    });
    let least: Vec<String> = Kind::ALL
        .into_iter()
        .filter_map(|kind| {
            let least = scheduler.least_batch(kind, &lanes)?;
            Some(format!("{least} for {}", kind.name()))
        })
        .collect();
    match least.as_slice() {
        [] => "software is cheaper for everything".to_owned(),
        least => format!("operations that make a batch: {}", least.join(", ")),
    }
}

/// Returns the lanes that `conf` asks for. `None` if there are none and a device computes in their
/// place.
///
/// # Errors
/// The reason why there are none, if there is no device either.
fn choose_backend(conf: &CoreConf) -> Result<Option<Backend>, String> {
    let (chosen, wanted) = match conf.lanes {
        directives::Lanes::Auto => (Backend::detect(), Backend::Avx512),
        directives::Lanes::Only(backend) => (
            Some(backend).filter(|backend| backend.is_available()),
            backend,
        ),
        directives::Lanes::Off if conf.device.is_some() => return Ok(None),
        directives::Lanes::Off => return Err("\"lanes off\"".into()),
    };
    // A device needs no lanes here, but lanes that were configured by name must be available.
    let is_optional = conf.device.is_some() && conf.lanes == directives::Lanes::Auto;
    if chosen.is_none() && !is_optional {
        let missing: Vec<&str> = wanted.missing().collect();
        return Err(format!("this CPU lacks {}", missing.join(" and ")));
    }
    Ok(chosen)
}

/// The backend for which this process has prepared keys, at first the chosen one. Keys are prepared
/// once, and nginx 1.28 keeps keys that have not changed over a reload.
fn first_backend(chosen: Backend) -> Backend {
    static FIRST: OnceLock<Backend> = OnceLock::new();
    *FIRST.get_or_init(|| chosen)
}

/// Loads the embedded provider beside OpenSSL's own, once in the life of this process.
fn load_provider() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), &'static str>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        const NAME: &CStr = c"slipstream";
        let context = std::ptr::null_mut();
        // SAFETY: no preconditions; null is the default library context.
        if unsafe { EVP_default_properties_is_fips_enabled(std::ptr::null_mut()) } == 1 {
            return Err("OpenSSL is configured to use FIPS implementations only");
        }
        // If an administrator has left it out, it must not be loaded by this module.
        if !has_default_provider() {
            return Err("OpenSSL is configured without its default provider");
        }
        let init = slipstream_openssl::provider_init as *const c_void;
        // SAFETY: the default library context, NUL-terminated names, and a function of the type
        // that OpenSSL expects, in a library that is never unloaded. As soon as any provider is
        // loaded by name, OpenSSL does not load its default one by itself.
        let loaded = unsafe {
            OSSL_PROVIDER_add_builtin(context, NAME.as_ptr(), init) == 1
                && !OSSL_PROVIDER_load(context, c"default".as_ptr()).is_null()
                && !OSSL_PROVIDER_load(context, NAME.as_ptr()).is_null()
        };
        if loaded {
            Ok(())
        } else {
            Err("OpenSSL refuses the provider")
        }
    });
    loaded.map_err(str::to_owned)
}

fn has_default_provider() -> bool {
    // SAFETY: the default library context and NUL-terminated strings; what is fetched is freed.
    unsafe {
        let digest = EVP_MD_fetch(
            std::ptr::null_mut(),
            c"SHA256".as_ptr(),
            c"provider=default".as_ptr(),
        );
        let found = !digest.is_null();
        EVP_MD_free(digest);
        ERR_clear_error();
        found
    }
}

/// Has OpenSSL prefer our algorithms, or stop doing so if it was told to before.
fn prefer_provider(prefer: bool) {
    static PREFERRED: AtomicBool = AtomicBool::new(false);
    if PREFERRED.swap(prefer, Ordering::Relaxed) == prefer {
        return;
    }
    // With a question mark: algorithms that we do not offer come from elsewhere.
    let properties = if prefer { c"?provider=slipstream" } else { c"" };
    // SAFETY: the default library context, and a NUL-terminated string.
    unsafe { EVP_set_default_properties(std::ptr::null_mut(), properties.as_ptr()) };
}

/// Measures operations on this machine, as far as `flush` asks, once for each backend.
fn measure(backend: Option<Backend>, flush: FlushPolicy) -> Result<Measured, String> {
    static MEASURED: Mutex<Vec<(Option<Backend>, Measured)>> = Mutex::new(Vec::new());
    let mut all = MEASURED.lock().expect("no panic while it is locked");
    if let Some((_, measured)) = all.iter().find(|(known, _)| *known == backend) {
        return Ok(*measured);
    }
    if slipstream_openssl::software_cost(Kind::Rsa(Size::Rsa2048)).is_none() {
        // The provider that OpenSSL has loaded under our name cannot see the fibers of this module.
        return Err(
            "another copy of the provider is loaded in this process (restart nginx after \
                    an upgrade, and keep slipstream.so out of its openssl.cnf)"
                .into(),
        );
    }
    if let FlushPolicy::AtLeast(_) = flush {
        // No decision depends on a cost: nginx need not wait until slow lanes have been measured.
        return Ok(Measured {
            lanes: backend.map_or_else(LaneCosts::default, LaneCosts::unknown),
            ..Measured::default()
        });
    }
    let measured = calibrate(backend, slipstream_openssl::software_cost);
    all.push((backend, measured));
    Ok(measured)
}

/// Imports the keys of a context into our provider now. PEM readers prefer the decoder's own key
/// management, so without this the import happens in each worker, in its first handshake. Returns
/// the number of keys.
///
/// # Safety
/// `context` is valid.
unsafe fn bring_keys(context: *mut SSL_CTX) -> usize {
    let mut keys = 0;
    let import = |key: *mut EVP_PKEY| {
        // SAFETY: a valid key, and OpenSSL's functions; what they allocate is freed here.
        unsafe {
            if is_ours(key) {
                let digest = EVP_MD_CTX_new();
                EVP_DigestSignInit_ex(
                    digest,
                    std::ptr::null_mut(),
                    c"SHA256".as_ptr(),
                    std::ptr::null_mut(),
                    std::ptr::null::<c_char>(),
                    key,
                    std::ptr::null(),
                );
                EVP_MD_CTX_free(digest);
                keys += 1;
            }
        }
        Ok::<(), Infallible>(())
    };
    // SAFETY: by the caller's promise.
    let Ok(()) = unsafe { each_private_key(context, import) };
    keys
}

/// Returns true if our provider has the key management for `key`.
///
/// # Safety
/// `key` is valid.
unsafe fn is_ours(key: *const EVP_PKEY) -> bool {
    // SAFETY: by the caller's promise, and NUL-terminated names.
    [c"RSA", c"EC"]
        .into_iter()
        .any(|name| unsafe { EVP_PKEY_is_a(key, name.as_ptr()) == 1 })
}
