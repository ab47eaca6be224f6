//! MapReduce: the results of each kept phase, in messages as they arrive, and a last message
//! without results.

use bytes::Bytes;
use kvorum_map_reduce_run::{AdmittedJob, JobForm, JobOutputs, RunError};
use kvorum_protocol::pb;
use prost::Message as _;

use crate::connection::Connection;
use crate::refusal::{Failure, Refusal};

impl Connection {
    pub(crate) async fn map_reduce(&mut self, payload: Bytes) -> Result<(), Failure> {
        self.check_job(self.shared.settings.jobs.map_reduce, "map_reduce")?;
        let request = pb::RpbMapRedReq::decode(payload)?;
        let form = match request.content_type.as_ref() {
            b"application/json" => JobForm::Json,
            b"application/x-erlang-binary" => JobForm::ErlangTerms,
            _ => return Err(Refusal::UnknownContentType(request.content_type).into()),
        };
        let coordinator = self.shared.coordinator.clone();
        let room = &self.shared.room;
        let admitted = AdmittedJob::read(&coordinator, room, form, request.request).await?;
        let mut outputs = JobOutputs::begin(&coordinator, admitted);
        while let Some(output) = outputs.next().await {
            let output = output?;
            let response = output.in_form(form).map_err(RunError::from)?;
            self.reply(&pb::RpbMapRedResp {
                phase: u32::try_from(output.phase).ok(),
                response: Some(response),
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
