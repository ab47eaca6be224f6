//! `cluster recover`: what it means, and doing it.

use std::fmt::{Display, Write as _};

use kvorum_member::Outlook;
use serde_json::json;

use super::address_of;
use super::cluster_admin::ClusterAdmin;
use crate::request::{AdminReply, Replied};
use crate::server::stop_this_process;

impl ClusterAdmin {
    /// Blocks.
    pub(super) fn recover(&self, is_forced: bool) -> Replied {
        let member = self.member.clone();
        let recovering = async move {
            if is_forced {
                member.recover().await
            } else {
                member.recovery_outlook().await
            }
        };
        let outlook = self.wait_for("recovery", recovering)?.map_err(failed)?;
        let own = &self.member.settings().name;
        let data = json!({
            "node": own, "version": outlook.version, "lost": outlook.lost,
            "to_follow": outlook.reachable, "recovers": is_forced,
        });
        let text = consequences(own, &outlook, is_forced);
        if !is_forced {
            return Err(AdminReply {
                is_ok: false,
                ..AdminReply::ok(text, data)
            });
        }
        let stopping = stop_this_process();
        Ok(if stopping.is_ok {
            AdminReply::ok(text, data)
        } else {
            stopping
        })
    }

    /// Blocks.
    pub(super) fn follow_recovered(&self, node: &str) -> Replied {
        let (address, name) = address_of(node)?;
        let member = self.member.clone();
        let following = async move { member.follow_recovered(address, Some(&name)).await };
        let joined = self.wait_for("recovery", following)?.map_err(failed)?;
        let by = joined.by;
        let stopping = stop_this_process();
        if !stopping.is_ok {
            return Err(stopping);
        }
        let text = format!(
            "This node follows '{by}' from its next start on. It stops now: start it again."
        );
        Ok(AdminReply::ok(text, json!({"follows": by})))
    }
}

fn failed(error: impl Display) -> AdminReply {
    AdminReply::refused(format!("Failed: {error}"))
}

fn consequences(own: &str, outlook: &Outlook, is_forced: bool) -> String {
    let mut text = if is_forced {
        format!("'{own}' goes on alone from its next start on. It stops now: start it again.\n")
    } else {
        format!(
            "No majority of the voters answers. With --force, '{own}' goes on alone with its last \
             state (version {}).\n",
            outlook.version
        )
    };
    text.push_str(
        "\nThe cluster gets another identity. Decisions about members, rings and bucket types \
         that\ndid not get here from the lost voters are undone; objects are not touched.\n",
    );
    if !outlook.lost.is_empty() {
        text.push_str("\nLost, and refused should they ever come back:\n");
        for name in &outlook.lost {
            let _infallible = writeln!(text, "  {name}");
        }
        text.push_str(
            "Never start them again on their data: they would go on as the cluster of before, and what\n\
             they take is not merged. Remove them afterwards with 'cluster force-remove' or\n\
             'cluster force-replace'; their partitions are repaired from the replicas that are left.\n",
        );
    }
    if !outlook.reachable.is_empty() {
        let _infallible = writeln!(
            text,
            "\nLeft as well: once '{own}' has started, run 'cluster recover --follow {own}' on each of"
        );
        for name in &outlook.reachable {
            let _infallible = writeln!(text, "  {name}");
        }
        text.push_str(
            "Until then they are not part of the cluster, and their objects wait \
         there.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_consequences_name_the_lost_nodes_and_those_that_have_to_follow() {
        let outlook = Outlook {
            version: 17,
            reachable: vec!["b@2".to_owned()],
            lost: vec!["c@3".to_owned()],
        };
        let text = consequences("a@1", &outlook, false);
        for wanted in [
            "With --force, 'a@1' goes on alone with its last state (version 17)",
            "Never start them again",
            "\n  c@3\n",
            "cluster recover --follow a@1' on each of\n  b@2\n",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
        assert!(consequences("a@1", &outlook, true).contains("It stops now"));
    }
}
