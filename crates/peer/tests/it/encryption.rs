//! Encrypted connections: pairs of settings that connect, and callers that are refused.

use std::sync::Arc;

use kvorum_peer::{Connected, Encryption};
use kvorum_tls::{Authority, HandshakeError, Identity, Material, Pem, Tls, Validity};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The security settings of a node, and its certificate.
struct Security {
    runtime: Runtime,
    authority: Authority,
}

impl Security {
    fn new(runtime: &Runtime) -> Self {
        let validity = Validity {
            made: runtime.wall_time(),
            lasts: 3650 * DAY,
        };
        Self {
            runtime: runtime.clone(),
            authority: Authority::make("test", validity).unwrap(),
        }
    }

    fn material(&self, cluster: &str, name: &str, lasts: Duration) -> Material {
        let made = self.runtime.wall_time();
        let identity = Identity {
            cluster: cluster.into(),
            node: name.into(),
        };
        let issued = self.authority.issue(&[identity], Validity { made, lasts });
        let issued = issued.unwrap();
        let pem = Pem {
            certificate: issued.certificate.as_bytes(),
            key: issued.key.as_bytes(),
            authority: self.authority.issued().certificate.as_bytes(),
        };
        Material::read(pem, made).unwrap()
    }

    fn tls(&self, number: u8) -> Arc<Tls> {
        let material = self.material("test", &name(node(number)), 700 * DAY);
        Arc::new(Tls::new(self.runtime.clone(), material).unwrap())
    }

    fn required(&self, number: u8) -> Encryption {
        Encryption::Required(self.tls(number))
    }

    fn optional(&self, number: u8) -> Encryption {
        Encryption::Optional(self.tls(number))
    }
}

fn peers(runtime: &Runtime, number: u8, encryption: Encryption) -> Peers {
    Peers::encrypted(runtime.clone(), Known::of(number), settings(), encryption)
}

async fn ask(runtime: &Runtime, peers: &Peers) -> Result<Message, PeerError> {
    let deadline = in_ms(runtime, 1_000);
    let who = Message::of_head("who");
    peers.request(node(2), Lane::Requests, who, deadline).await
}

/// Calls node 2 from node 1, each with its kind of encryption; returns the result, and the
/// encryption that both sides report.
async fn outcome(
    runtime: &Runtime,
    calls: Encryption,
    answers: Encryption,
) -> Result<bool, PeerError> {
    let answerer = peers(runtime, 2, answers);
    let (_, serving) = answering_over(runtime, 2, answerer.clone());
    let caller = peers(runtime, 1, calls);
    let answer = ask(runtime, &caller).await;
    let kinds: Vec<bool> = [&caller, &answerer]
        .into_iter()
        .flat_map(Peers::connections)
        .map(|it| it.is_encrypted)
        .collect();
    drop(serving);
    runtime.sleep(Duration::from_millis(1)).await;
    assert!(answerer.connections().is_empty());
    assert_eq!(answer?.head, "requests true 1000");
    assert_eq!(kinds.len(), 2);
    assert_eq!(kinds[0], kinds[1]);
    Ok(kinds[0])
}

#[test]
fn messages_of_any_size_and_both_directions_are_carried() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        let answerer = peers(&runtime, 2, security.required(2));
        let _answering = answering_over(&runtime, 2, answerer.clone());
        let caller = peers(&runtime, 1, security.required(1));
        for size in [0, 1, 4_096, 65_535, 65_537, 5_000_000] {
            for lane in [Lane::Control, Lane::Requests, Lane::Bulk] {
                let message = Message {
                    head: Bytes::from_static(b"echo"),
                    body: Bytes::from(vec![5; size]),
                };
                let deadline = in_ms(&runtime, 1_000);
                let answer = caller.request(node(2), lane, message.clone(), deadline);
                assert_eq!(answer.await, Ok(message));
            }
        }
        let of = |node, is_asking| {
            let lanes = [Lane::Control, Lane::Requests, Lane::Bulk];
            lanes.map(|lane| Connected {
                node,
                lane,
                is_asking,
                is_encrypted: true,
            })
        };
        assert_eq!(caller.connections(), of(node(2), true));
        assert_eq!(answerer.connections(), of(node(1), false));
    });
}

#[test]
fn who_wants_encryption_gets_it_or_nothing() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        let on = |number| security.required(number);
        let optional = |number| security.optional(number);
        let off = Encryption::Off;
        for (calls, answers, encrypted) in [
            (off.clone(), off.clone(), false),
            (off.clone(), optional(2), false),
            (optional(1), off.clone(), false),
            (optional(1), optional(2), true),
            (optional(1), on(2), true),
            (on(1), optional(2), true),
            (on(1), on(2), true),
        ] {
            assert_eq!(outcome(&runtime, calls, answers).await, Ok(encrypted));
        }
        let without = outcome(&runtime, off.clone(), on(2)).await;
        let refused = PeerError::Refused {
            address: address(2),
            refusal: Refusal::NotEncrypted,
        };
        assert_eq!(without, Err(refused));
        let not_spoken = PeerError::Encryption {
            address: address(2),
            failure: HandshakeError::NotSpoken,
        };
        assert_eq!(outcome(&runtime, on(1), off).await, Err(not_spoken));
    });
}

fn failure(outcome: Result<bool, PeerError>) -> Option<HandshakeError> {
    match outcome {
        Err(PeerError::Encryption { failure, .. }) => Some(failure),
        _ => None,
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    simulated(|runtime| async move {
        let (ours, others) = (Security::new(&runtime), Security::new(&runtime));
        let refused = failure(outcome(&runtime, ours.required(1), others.required(2)).await);
        assert!(
            matches!(refused, Some(HandshakeError::Certificate { .. })),
            "{refused:?}"
        );
        // Nothing is refused during the transition to TLS.
        let outcome = outcome(&runtime, ours.optional(1), others.optional(2)).await;
        assert_eq!(outcome, Ok(false));
    });
}

#[test]
fn a_certificate_speaks_for_no_other_node_and_no_other_cluster() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        let with = |cluster: &str, name: &str| {
            let material = security.material(cluster, name, DAY);
            Arc::new(Tls::new(runtime.clone(), material).unwrap())
        };
        for (cluster, name) in [("test", "node3@host"), ("production", "node1@host")] {
            let other = with(cluster, name);
            let calls = Encryption::Required(other.clone());
            let refused = PeerError::Refused {
                address: address(2),
                refusal: Refusal::OtherCertificate,
            };
            let answers = security.required(2);
            assert_eq!(outcome(&runtime, calls, answers).await, Err(refused));
            let calls = Encryption::Optional(other.clone());
            let answers = security.optional(2);
            assert_eq!(outcome(&runtime, calls, answers).await, Ok(false));
            let answers = Encryption::Required(other);
            let refused = failure(outcome(&runtime, security.required(1), answers).await);
            assert!(
                matches!(refused, Some(HandshakeError::OtherName { .. })),
                "{refused:?}"
            );
        }
    });
}

#[test]
fn an_expired_certificate_is_refused_until_it_is_replaced() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        let name = name(node(1));
        let short = security.material("test", &name, DAY);
        let short = Arc::new(Tls::new(runtime.clone(), short).unwrap());
        let answers = security.required(2);
        let calls = Encryption::Required(short.clone());
        assert_eq!(
            outcome(&runtime, calls.clone(), answers.clone()).await,
            Ok(true)
        );
        runtime.sleep(2 * DAY).await;
        let refused = failure(outcome(&runtime, calls.clone(), answers.clone()).await);
        assert!(
            matches!(refused, Some(HandshakeError::Refused { .. })),
            "{refused:?}"
        );
        let renewed = security.material("test", &name, DAY);
        short.replace(renewed).unwrap();
        assert_eq!(outcome(&runtime, calls, answers).await, Ok(true));
    });
}

#[test]
fn a_connection_outlives_the_replacement_of_its_certificate() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        let _answering = answering_over(&runtime, 2, peers(&runtime, 2, security.required(2)));
        let tls = security.tls(1);
        let caller = peers(&runtime, 1, Encryption::Required(tls.clone()));
        assert!(ask(&runtime, &caller).await.is_ok());
        let before = caller.connections();
        let renewed = security.material("test", &name(node(1)), DAY);
        tls.replace(renewed).unwrap();
        assert!(ask(&runtime, &caller).await.is_ok());
        assert_eq!(caller.connections(), before);
    });
}

#[test]
fn a_stranger_knocks_with_any_certificate_of_the_cluster_and_not_without() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        let _answering = answering_over(&runtime, 2, peers(&runtime, 2, security.required(2)));
        let stranger = Introduction {
            cluster: node(0),
            node: node(77),
            ..Known::of(1).introduction.clone()
        };
        let knock = |encryption: Encryption| {
            let (peers, stranger) = (peers(&runtime, 1, encryption), stranger.clone());
            let deadline = in_ms(&runtime, 1_000);
            async move {
                let who = Message::of_head("who");
                peers.knock(address(2), stranger, who, deadline).await
            }
        };
        let (reached, answer) = knock(security.required(77)).await.unwrap();
        assert_eq!(
            (reached, &answer.head[..]),
            (node(2), &b"control false 1000"[..])
        );
        let refused = knock(Encryption::Off).await.unwrap_err();
        assert!(refused.is_about_encryption(), "{refused}");
        // A caller that claims to be a member has to show that member's certificate, also in a
        // request to join.
        let claiming = Introduction {
            node: node(3),
            ..stranger.clone()
        };
        let peers = peers(&runtime, 1, security.required(77));
        let deadline = in_ms(&runtime, 1_000);
        let knocked = peers.knock(address(2), claiming, Message::of_head("who"), deadline);
        let refused = knocked.await.unwrap_err();
        assert!(refused.is_about_encryption(), "{refused}");
    });
}

#[test]
fn hostile_bytes_behind_the_first_end_their_connection_and_nothing_else() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        for answers in [security.required(2), security.optional(2), Encryption::Off] {
            let (_, serving) = answering_over(&runtime, 2, peers(&runtime, 2, answers.clone()));
            let calls = match answers {
                Encryption::Off => Encryption::Off,
                _ => security.required(1),
            };
            let caller = peers(&runtime, 1, calls);
            for length in [5, 50, 5_000] {
                let mut stream = runtime.connect(address(2)).await.unwrap();
                let mut bytes = vec![0x16, 0x03, 0x01];
                bytes.extend((0..length).map(|_| runtime.random_u64().to_le_bytes()[3]));
                // The other side may have closed the connection already.
                let _sent_or_not = stream.write_all(&bytes).await;
                assert!(ask(&runtime, &caller).await.is_ok());
            }
            drop(serving);
            runtime.sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn who_says_nothing_behind_the_handshake_is_not_waited_for() {
    simulated(|runtime| async move {
        let security = Security::new(&runtime);
        let answerer = peers(&runtime, 2, security.required(2));
        let (_, _serving) = answering_over(&runtime, 2, answerer.clone());
        let stream = runtime.connect(address(2)).await.unwrap();
        let (mut stream, _) = security.tls(1).connect(stream).await.unwrap();
        runtime.sleep(2 * settings().connect_wait_max).await;
        assert!(stream.read_u8().await.is_err());
        assert!(answerer.connections().is_empty());
    });
}
