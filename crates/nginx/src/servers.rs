//! The servers of a configuration that take TLS, of http and of stream.

use nginx_sys::{
    SSL_CTX, ngx_cycle_t, ngx_http_conf_ctx_t, ngx_http_core_main_conf_t, ngx_http_core_module,
    ngx_http_core_srv_conf_t, ngx_http_module, ngx_module_t,
};

use crate::config::ServerConf;
#[cfg(stream)]
use crate::stream;
use crate::{assumptions, index};

/// The servers of a configuration.
#[derive(Default)]
pub(crate) struct Servers {
    pub(crate) http: Group,
    pub(crate) stream: Group,
}

/// The servers of http, or those of stream.
#[derive(Default)]
pub(crate) struct Group {
    /// A server has `slipstream on`.
    pub(crate) any_enabled: bool,
    /// Their TLS contexts.
    pub(crate) contexts: Vec<*mut SSL_CTX>,
    /// An assumption about nginx that does not hold.
    pub(crate) differs: Option<String>,
}

impl Servers {
    /// Returns the servers of `cycle`.
    ///
    /// # Safety
    /// `cycle` is a cycle whose configuration has been read, and the one before it is still there.
    pub(crate) unsafe fn of(cycle: *const ngx_cycle_t) -> Self {
        // SAFETY: by the caller's promise.
        unsafe {
            Self {
                http: http(cycle),
                #[cfg(stream)]
                stream: stream::servers(cycle),
                #[cfg(not(stream))]
                stream: Group::default(),
            }
        }
    }

    /// Returns true if any server has `slipstream on`.
    pub(crate) fn any_enabled(&self) -> bool {
        self.http.any_enabled || self.stream.any_enabled
    }

    /// # Errors
    /// An assumption about http that does not hold.
    pub(crate) fn check_http(&self) -> Result<(), String> {
        self.http.differs.clone().map_or(Ok(()), Err)
    }

    /// # Errors
    /// An assumption about stream that does not hold.
    pub(crate) fn check_stream(&self) -> Result<(), String> {
        self.stream.differs.clone().map_or(Ok(()), Err)
    }

    /// Returns all TLS contexts.
    pub(crate) fn contexts(&self) -> Vec<*mut SSL_CTX> {
        [&self.http, &self.stream]
            .into_iter()
            .flat_map(|group| group.contexts.iter().copied())
            .collect()
    }
}

unsafe extern "C" {
    static ngx_http_ssl_module: ngx_module_t;
}

/// # Safety
/// As [`Servers::of`].
unsafe fn http(cycle: *const ngx_cycle_t) -> Group {
    let mut group = Group::default();
    // SAFETY: nginx's configuration tree, each level indexed with the module's own index, as
    // nginx's macros ngx_http_cycle_get_module_main_conf and ngx_http_conf_get_module_srv_conf do.
    unsafe {
        let http = *(*cycle)
            .conf_ctx
            .add((&raw const ngx_http_module.index).read());
        if http.is_null() {
            return group;
        }
        let main = (*http.cast::<ngx_http_conf_ctx_t>()).main_conf;
        let core = *main.add((&raw const ngx_http_core_module.ctx_index).read());
        let servers = &(*core.cast::<ngx_http_core_main_conf_t>()).servers;
        for &server in servers.as_slice::<*mut ngx_http_core_srv_conf_t>() {
            let confs = (*(*server).ctx).srv_conf;
            let ours = *confs.add(index::http_context_index());
            let ssl = *confs.add((&raw const ngx_http_ssl_module.ctx_index).read());
            group.any_enabled |= (*ours.cast::<ServerConf>()).is_enabled();
            match assumptions::tls_context(cycle, ssl) {
                Ok(context) => group.contexts.extend(context),
                Err(differs) => group.differs = Some(differs),
            }
        }
    }
    group
}
