//! MapReduce: the results of each phase that is kept, in messages as they come, and a last one without
//! any.

use bytes::Bytes;
use kvorum_map_reduce_run::{AdmittedJob, JobRun};
use kvorum_protocol::pb;
use prost::Message as _;

use crate::connection::Connection;
use crate::refusal::{Failure, Refusal};

impl Connection {
    pub(crate) async fn map_reduce(&mut self, payload: Bytes) -> Result<(), Failure> {
        self.check_job(self.shared.settings.jobs.map_reduce, "map_reduce")?;
        let request = pb::RpbMapRedReq::decode(payload)?;
        if request.content_type.as_ref() != b"application/json" {
            let content_type = request.content_type;
            return Err(Refusal::UnknownContentType(content_type).into());
        }
        let coordinator = self.shared.coordinator.clone();
        let (runtime, room) = (coordinator.runtime(), &self.shared.room);
        let admitted = AdmittedJob::read(runtime, room, request.request).await?;
        let mut run = JobRun::begin(&coordinator, admitted);
        while let Some(output) = run.next().await {
            let output = output?;
            let response = output
                .json()
                .map_err(kvorum_map_reduce_run::RunError::from)?;
            self.reply(&pb::RpbMapRedResp {
                phase: u32::try_from(output.phase).ok(),
                response: Some(response.into()),
                done: None,
            })?;
            self.send().await.map_err(Failure::Lost)?;
        }
        self.reply(&pb::RpbMapRedResp {
            done: Some(true),
            ..pb::RpbMapRedResp::default()
        })
    }
}
