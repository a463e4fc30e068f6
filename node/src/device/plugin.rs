//! One resource as a gRPC service.

use std::path::PathBuf;
use std::pin::Pin;

use futures::Stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::resource::{Health, Resource};
use crate::generated::v1beta1::device_plugin_server::DevicePlugin;
use crate::generated::v1beta1::{
    AllocateRequest, AllocateResponse, DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};

/// The service of one resource.
pub(super) struct Plugin {
    pub(super) resource: Resource,
    pub(super) count: u32,
    pub(super) agent_directory: PathBuf,
    pub(super) health: watch::Receiver<Health>,
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (resource, count) = (self.resource, self.count);
        let mut health = self.health.clone();
        health.mark_changed();
        let offers = futures::stream::unfold(health, move |mut health| async move {
            health.changed().await.ok()?;
            let now = *health.borrow_and_update();
            Some((Ok(resource.offer(count, now)), health))
        });
        Ok(Response::new(Box::pin(offers)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("one device is as good as another"))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        Ok(Response::new(self.resource.allocate(request.get_ref(), &self.agent_directory)))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse::default()))
    }
}
