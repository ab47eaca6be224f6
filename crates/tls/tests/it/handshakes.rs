//! Two ends of a connection over simulated sockets, on virtual time.

use std::future::Future;
use std::net::SocketAddr;

use kvorum_runtime::{ListenOptions, Runtime, Stream};
use kvorum_tls::{
    Certified, HandshakeError, Material, SecureStream, Tls, begins_handshake, into_split,
    is_encrypted,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{DAY, START, authority, issued, material, read_at};

type Shaken = Result<(SecureStream, Certified), HandshakeError>;

fn simulated<F: Future<Output = ()>>(test: impl FnOnce(Runtime) -> F) {
    let executor = Runtime::simulated(1).unwrap();
    executor.block_on(test(executor.runtime()));
}

fn tls(runtime: &Runtime, material: Material) -> Tls {
    Tls::new(runtime.clone(), material).unwrap()
}

/// Both ends of a connection: the caller's and the callee's.
async fn connection(runtime: &Runtime) -> (Stream, Stream) {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = runtime.listen(address, ListenOptions::default()).unwrap();
    let calling = runtime.connect(listener.local_address()).await.unwrap();
    let (called, _) = listener.accept().await.unwrap();
    (calling, called)
}

async fn accept(called: &Tls, mut stream: Stream) -> Shaken {
    let mut heard = [0; 10];
    stream.read_exact(&mut heard).await.unwrap();
    assert!(begins_handshake(&heard));
    called.accept(stream, &heard).await
}

/// A handshake and a byte from the callee, which shows the caller that it was accepted.
async fn shake(runtime: &Runtime, calling: &Tls, called: &Tls) -> (Shaken, Shaken) {
    let (one, other) = connection(runtime).await;
    let caller = async {
        let (mut stream, certified) = calling.connect(one).await?;
        let read = stream.read_u8().await;
        read.map_err(|error| HandshakeError::behind(&error).unwrap())?;
        Ok((stream, certified))
    };
    let answerer = async {
        let (mut stream, certified) = accept(called, other).await?;
        stream.write_u8(7).await.unwrap();
        stream.flush().await.unwrap();
        Ok((stream, certified))
    };
    tokio::join!(biased; caller, answerer)
}

fn error(shaken: Shaken) -> HandshakeError {
    shaken.map(|_| ()).unwrap_err()
}

#[test]
fn both_ends_learn_the_name_of_the_other() {
    simulated(|runtime| async move {
        let authority = authority();
        let one = tls(&runtime, material(&authority, "one@host"));
        let other = tls(&runtime, material(&authority, "other@host"));
        let (caller, answerer) = shake(&runtime, &one, &other).await;
        let (mut caller, certified) = caller.map_err(|it| it.to_string()).unwrap();
        assert!(certified.speaks_for("orders", "other@host"));
        let (mut answerer, certified) = answerer.map_err(|it| it.to_string()).unwrap();
        assert!(certified.speaks_for("orders", "one@host"));
        assert!(is_encrypted(&caller) && is_encrypted(&answerer));
        // More than either end buffers, in both directions at once.
        let sent: Vec<u8> = (0..3_000_000_u32).map(|it| it.to_le_bytes()[1]).collect();
        let exchange = |stream: SecureStream, sent: Vec<u8>| async move {
            let (mut read, mut write) = into_split(stream);
            let mut got = vec![0; sent.len()];
            let writing = async {
                write.write_all(&sent).await.unwrap();
                write.flush().await.unwrap();
            };
            let reading = async { read.read_exact(&mut got).await.unwrap() };
            tokio::join!(biased; writing, reading);
            (got == sent, read, write)
        };
        caller.flush().await.unwrap();
        answerer.flush().await.unwrap();
        let (one, other) =
            tokio::join!(biased; exchange(caller, sent.clone()), exchange(answerer, sent));
        assert!(one.0 && other.0);
        let (mut read, mut write) = (one.1, other.2);
        write.shutdown().await.unwrap();
        assert_eq!(read.read(&mut [0; 8]).await.unwrap(), 0);
    });
}

#[test]
fn nothing_goes_over_the_network_in_the_clear() {
    simulated(|runtime| async move {
        let authority = authority();
        let one = tls(&runtime, material(&authority, "one@host"));
        let (calling, mut called) = connection(&runtime).await;
        let _caller = runtime.spawn(
            "caller",
            async move { one.connect(calling).await.map(|_| ()) },
        );
        let mut heard = Vec::new();
        called.read_buf(&mut heard).await.unwrap();
        assert!(begins_handshake(&heard));
        let clear = String::from_utf8_lossy(&heard);
        assert!(!clear.contains("one@host") && !clear.contains("orders"));
    });
}

#[test]
fn a_certificate_of_another_authority_is_refused_by_either_end() {
    simulated(|runtime| async move {
        let (ours, other) = (authority(), authority());
        let good = tls(&runtime, material(&ours, "one@host"));
        let foreign = tls(&runtime, material(&other, "two@host"));
        let (caller, answerer) = shake(&runtime, &good, &foreign).await;
        let refused = error(caller);
        assert!(
            matches!(refused, HandshakeError::Certificate { .. }),
            "{refused}"
        );
        let failure = error(answerer);
        assert!(
            matches!(failure, HandshakeError::Refused { .. }),
            "{failure}"
        );
        // This end accepts both authorities. The other end does not accept its certificate.
        let own = issued(&other, "two@host", 30);
        let both = [&ours, &other]
            .map(|it| it.issued().certificate.clone())
            .concat();
        let pem = kvorum_tls::Pem {
            certificate: own.certificate.as_bytes(),
            key: own.key.as_bytes(),
            authority: both.as_bytes(),
        };
        let believing = tls(&runtime, Material::read(pem, START).unwrap());
        let (caller, answerer) = shake(&runtime, &believing, &good).await;
        let refused = error(answerer);
        assert!(
            matches!(refused, HandshakeError::Certificate { .. }),
            "{refused}"
        );
        let failure = error(caller);
        assert!(
            matches!(failure, HandshakeError::Refused { .. }),
            "{failure}"
        );
    });
}

#[test]
fn an_expired_certificate_is_refused_by_either_end() {
    simulated(|runtime| async move {
        let authority = authority();
        let short = read_at(&authority, &issued(&authority, "short@host", 10), START).unwrap();
        let short = tls(&runtime, short);
        let long = tls(&runtime, material(&authority, "long@host"));
        let (caller, answerer) = shake(&runtime, &short, &long).await;
        assert!(caller.is_ok() && answerer.is_ok());
        runtime.sleep(DAY * 11).await;
        let (caller, answerer) = shake(&runtime, &short, &long).await;
        assert!(error(answerer).to_string().contains("valid no longer"));
        assert!(error(caller).to_string().contains("valid no longer"));
        let (caller, answerer) = shake(&runtime, &long, &short).await;
        assert!(error(caller).to_string().contains("valid no longer"));
        assert!(error(answerer).to_string().contains("valid no longer"));
        // A new certificate takes effect without a restart.
        let made = kvorum_tls::Validity {
            made: runtime.wall_time(),
            lasts: DAY,
        };
        let own = authority
            .issue(&[super::identity("short@host")], made)
            .unwrap();
        let renewed = read_at(&authority, &own, runtime.wall_time()).unwrap();
        short.replace(renewed).unwrap();
        let (caller, answerer) = shake(&runtime, &short, &long).await;
        assert!(caller.is_ok() && answerer.is_ok());
    });
}

#[test]
fn an_end_without_tls_is_recognized() {
    simulated(|runtime| async move {
        let one = tls(&runtime, material(&authority(), "one@host"));
        for answer in [&b""[..], b"KvPeer\r\n or whatever it says"] {
            let (calling, mut called) = connection(&runtime).await;
            let answerer = async move {
                let mut heard = [0; 10];
                called.read_exact(&mut heard).await.unwrap();
                called.write_all(answer).await.unwrap();
            };
            let (caller, ()) = tokio::join!(biased; one.connect(calling), answerer);
            assert_eq!(error(caller), HandshakeError::NotSpoken);
        }
    });
}

#[test]
fn any_bytes_of_a_caller_are_refused_without_harm() {
    simulated(|runtime| async move {
        let one = tls(&runtime, material(&authority(), "one@host"));
        for length in [10, 50, 500] {
            let (mut calling, called) = connection(&runtime).await;
            let mut bytes = vec![0x16, 0x03, 0x01, 0x00, 0x40];
            bytes.extend((0..length).map(|_| runtime.random_u64().to_le_bytes()[0]));
            calling.write_all(&bytes).await.unwrap();
            calling.shutdown().await.unwrap();
            assert!(accept(&one, called).await.is_err());
        }
    });
}
