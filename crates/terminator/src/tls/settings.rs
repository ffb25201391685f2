//! Settings of rustls for a listener.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion, version};

use super::certificates::Certificates;
use super::error::TlsError;
use super::pem;
use crate::configuration::{ClientCertificates, Listener};

/// Encryption of the session tickets of one listener. Its keys are replaced every six hours and
/// kept for twelve. Other listeners do not accept the tickets, since they may require a client
/// certificate.
#[derive(Clone, Debug)]
pub(crate) struct Tickets {
    producer: Arc<dyn ProducesTickets>,
    /// Verification of clients for which the tickets were issued. A resumption does not verify the
    /// client again, so a change makes old tickets invalid.
    client_verification: ClientVerification,
}

/// Returns the settings of `listener` and its tickets. Those of `previous` are kept if client
/// certificates are verified in the same way.
///
/// # Errors
/// Returns an error that names the file and the reason.
pub(crate) fn settings(
    listener: &Listener,
    tickets_per_handshake: usize,
    provider: Arc<CryptoProvider>,
    certificates: Certificates,
    previous: Option<&Tickets>,
) -> Result<(ServerConfig, Tickets), TlsError> {
    let (verifier, client_verification) =
        verifier(listener.client_certificates.as_ref(), &provider)?;
    let tickets = match previous {
        Some(previous) if previous.client_verification == client_verification => previous.clone(),
        _ => Tickets {
            producer: Ticketer::new().map_err(TlsError::Tickets)?,
            client_verification,
        },
    };
    let versions: Vec<&'static SupportedProtocolVersion> = [
        (listener.tls13, &version::TLS13),
        (listener.tls12, &version::TLS12),
    ]
    .into_iter()
    .filter_map(|(is_offered, version)| is_offered.then_some(version))
    .collect();
    let mut settings = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(TlsError::Settings)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(certificates));
    settings.alpn_protocols = listener
        .alpn
        .iter()
        .map(|name| name.clone().into_bytes())
        .collect();
    // Sessions are stored in tickets only: a store in memory would not help another process.
    settings.session_storage = Arc::new(NoServerSessionStorage {});
    settings.send_tls13_tickets = tickets_per_handshake;
    if tickets_per_handshake > 0 {
        settings.ticketer = tickets.producer.clone();
    }
    Ok((settings, tickets))
}

/// Settings and authorities that client certificates are verified with, if they are requested.
type ClientVerification = Option<(ClientCertificates, Vec<CertificateDer<'static>>)>;

fn verifier(
    clients: Option<&ClientCertificates>,
    provider: &Arc<CryptoProvider>,
) -> Result<(Arc<dyn ClientCertVerifier>, ClientVerification), TlsError> {
    let Some(clients) = clients else {
        return Ok((WebPkiClientVerifier::no_client_auth(), None));
    };
    let (roots, authorities) = pem::authorities(&clients.authorities)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = match clients.required {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    let verifier = builder.build().map_err(|source| TlsError::Verifier {
        file: clients.authorities.clone(),
        source,
    })?;
    Ok((verifier, Some((clients.clone(), authorities))))
}
