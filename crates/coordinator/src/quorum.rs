//! Quorums as numbers: those of a request, checked against the number of its replicas.
//!
//! A request names r, w and the rest as numbers or words; the bucket's properties fill in those
//! that it leaves out. Two numbers bound them. The bucket's `n_val` decides about violations: a
//! quorum above it is a mistake in a cluster of any size, in the request and in the bucket alike.
//! The *effective* n, at most the number of members of the committed ring, bounds the answers to
//! wait for: a bucket with n_val 3 on one node has one copy, and its quorum is one. `node_confirms`
//! is never reduced, since it means a number of distinct machines.

use crate::error::RequestError;

/// The answers that a get waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadQuorum {
    /// Replicas asked.
    pub n: usize,
    /// Answers needed.
    pub r: usize,
    /// Primaries among them.
    pub pr: usize,
    /// Distinct nodes among the answers.
    pub node_confirms: usize,
    /// Give up once a majority has found nothing.
    pub basic_quorum: bool,
    /// "There is nothing" counts as an answer.
    pub notfound_ok: bool,
}

/// The answers that a put waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteQuorum {
    /// Replicas written.
    pub n: usize,
    /// Replicas that have received the object.
    pub w: usize,
    /// Replicas that have stored it, as durably as they are configured to. At least one: the
    /// coordinating replica writes first.
    pub dw: usize,
    /// Primaries among the replicas that received it.
    pub pw: usize,
    /// Distinct nodes among them.
    pub node_confirms: usize,
}

/// The quorums of a put: one in the present preference list, and during a move also one in the next
/// list. An answer counts in each list that its replica is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteQuorums {
    /// In the present list, or the one before.
    pub old: WriteQuorum,
    /// In the next list, during a move.
    pub new: Option<WriteQuorum>,
}

/// The replicas that a preference list can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Length of the list.
    pub replicas: usize,
    /// Primaries in it.
    pub primaries: usize,
    /// Distinct nodes in it.
    pub nodes: usize,
}

impl ReadQuorum {
    /// Refuses quorums that these replicas can never meet.
    pub fn check(&self, offered: Offered) -> Result<(), RequestError> {
        if offered.replicas == 0 {
            return Err(RequestError::AllNodesDown);
        }
        if offered.primaries < self.pr {
            let (wanted, got) = (self.pr, offered.primaries);
            return Err(RequestError::PrimaryReadsUnsatisfied { wanted, got });
        }
        if offered.replicas < self.r {
            let (wanted, got) = (self.r, offered.replicas);
            return Err(RequestError::InsufficientVnodes { wanted, got });
        }
        check_nodes(self.node_confirms, offered)
    }

    /// The least number of replicas that have to answer.
    pub fn needed(&self) -> usize {
        self.r.max(self.pr).max(self.node_confirms).max(1)
    }

    /// Failures after which success is out of reach.
    pub fn failures_max(&self) -> usize {
        let needed = self.r.max(self.pr);
        let out_of_reach = self.n.saturating_sub(needed) + 1;
        if self.basic_quorum {
            (self.n / 2 + 1).min(out_of_reach)
        } else {
            out_of_reach
        }
    }
}

impl WriteQuorum {
    /// Refuses quorums that these replicas can never meet.
    pub fn check(&self, offered: Offered) -> Result<(), RequestError> {
        if offered.replicas == 0 {
            return Err(RequestError::AllNodesDown);
        }
        if offered.primaries < self.pw {
            let (wanted, got) = (self.pw, offered.primaries);
            return Err(RequestError::PrimaryWritesUnsatisfied { wanted, got });
        }
        let wanted = self.w.max(self.dw);
        if offered.replicas < wanted {
            return Err(RequestError::InsufficientVnodes {
                wanted,
                got: offered.replicas,
            });
        }
        check_nodes(self.node_confirms, offered)
    }
}

fn check_nodes(wanted: usize, offered: Offered) -> Result<(), RequestError> {
    if offered.nodes < wanted {
        return Err(RequestError::InsufficientNodes {
            wanted,
            got: offered.nodes,
        });
    }
    Ok(())
}
