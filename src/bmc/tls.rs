//! TLS with a BMC: whose certificate counts, and the transport that asks.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, StreamOwned,
};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use super::Trust;

/// The certificates in a text in PEM; none if there are none, or one is damaged.
#[must_use]
pub fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.collect::<Result<_, _>>().unwrap_or_default()
}

/// Wraps a connection in TLS where the address asks for it.
pub struct Tls {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// For a server whose certificate counts by `trust`.
    ///
    /// # Errors
    /// When nobody is trusted.
    pub fn new(trust: &Trust) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier::new(trust, &provider)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self {
            config: Arc::new(config),
        })
    }
}

/// Decides whether a certificate counts.
#[derive(Debug)]
struct Verifier {
    /// By their authorities; none if any certificate counts.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that count themselves: a BMC's own, signed by itself.
    own: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let own = match trust {
            Trust::Authorities(pem) => certificates(pem),
            Trust::System | Trust::Insecure => Vec::new(),
        };
        let trusted = match trust {
            Trust::Authorities(_) => Some(own.clone()),
            Trust::System => Some(rustls_native_certs::load_native_certs().certs),
            Trust::Insecure => None,
        };
        let authorities = trusted.map(|trusted| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(trusted);
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|error| Error::General(error.to_string()))
        });
        Ok(Self {
            authorities: authorities.transpose()?,
            own,
            provider: Arc::clone(provider),
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        let result = authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match result {
            // what a BMC signs itself often calls itself an authority, which no server should be;
            // its time was looked at before that, its name was not
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.own.contains(end_entity) =>
            {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&certificate, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(plain) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() {
            return Ok(Some(Either::A(plain)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ureq::Error::Tls("the host has a name that no certificate can have"))?;
        let client = ClientConnection::new(Arc::clone(&self.config), name).map_err(failed)?;
        let mut socket = TransportAdapter::new(plain.boxed(), Arc::clone(&details.current_time));
        socket.set_timeout(details.timeout);
        let mut stream = StreamOwned::new(client, socket);
        // now, and not with the first byte, so that a fault of it is told as one
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        let (input, output) = (
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(Some(Either::B(Encrypted {
            stream,
            buffers: LazyBuffers::new(input, output),
        })))
    }
}

fn failed(error: Error) -> ureq::Error {
    std::io::Error::other(error).into()
}

/// A connection in TLS.
pub struct Encrypted {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypted").finish_non_exhaustive()
    }
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let length = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
