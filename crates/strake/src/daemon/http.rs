//! The management API over HTTP: routes, and nothing else. What a request means is the
//! [`Manager`]'s; its calls block, so each runs on a thread that may.

use crate::daemon::convert::error;
use crate::daemon::manager::Manager;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use strake_api::{self as api, ErrorKind};
use utoipa::OpenApi;

/// The manager, shared by all requests.
type Shared = State<Arc<Manager>>;
type Answer<T> = Result<Json<T>, Failure>;

/// An error as a response.
struct Failure(api::Error);

impl From<api::Error> for Failure {
    fn from(error: api::Error) -> Failure {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.kind.http_status());
        let status = status.expect("every kind has a valid status");
        (status, Json(api::ErrorBody { error: self.0 })).into_response()
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Failure {
        Failure(error(ErrorKind::Invalid, rejection.body_text()))
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Failure {
        Failure(error(ErrorKind::Invalid, rejection.body_text()))
    }
}

/// A JSON body whose mistakes are answered as [`Failure`]s.
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Json(value) = Json::from_request(request, state).await?;
        Ok(Body(value))
    }
}

/// A query whose mistakes are answered as [`Failure`]s.
struct Query<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let axum::extract::Query(value) =
            axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Query(value))
    }
}

/// Runs a call that may block.
async fn blocking<T: Send + 'static>(
    State(manager): Shared,
    call: impl FnOnce(&Manager) -> Result<T, api::Error> + Send + 'static,
) -> Answer<T> {
    match tokio::task::spawn_blocking(move || call(&manager)).await {
        Ok(result) => Ok(Json(result?)),
        Err(_) => Err(Failure(error(
            ErrorKind::Internal,
            "the daemon is ending: try again when it is back",
        ))),
    }
}

/// Every route of the API.
pub fn router(manager: Arc<Manager>) -> axum::Router {
    axum::Router::new()
        .route("/v1/status", get(status))
        .route("/v1/drives", get(list_drives))
        .route("/v1/drives/show", get(show_drive))
        .route("/v1/drives/clean", post(clean_drive))
        .route("/v1/drives/fault", post(fault_drive))
        .route("/v1/arrays", get(list_arrays).post(create_array))
        .route("/v1/arrays/scan", post(scan_arrays))
        .route("/v1/arrays/import", post(import_array))
        .route(
            "/v1/arrays/{array}",
            get(show_array).patch(set_array).delete(destroy_array),
        )
        .route("/v1/arrays/{array}/start", post(start_array))
        .route("/v1/arrays/{array}/stop", post(stop_array))
        .route("/v1/arrays/{array}/fail", post(fail_member))
        .route("/v1/arrays/{array}/remove", post(remove_member))
        .route("/v1/arrays/{array}/replace", post(replace_member))
        .route("/v1/arrays/{array}/scrub", post(scrub_array))
        .route("/v1/arrays/{array}/torn", get(torn_blocks))
        .route("/v1/arrays/{array}/accept", post(accept_suspect))
        .route("/v1/exports", get(list_exports).post(create_export))
        .route(
            "/v1/exports/{export}",
            get(show_export).delete(remove_export),
        )
        .route("/v1/openapi.json", get(document))
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_route)
        .with_state(manager)
}

async fn no_such_route() -> Failure {
    let text = "the API has no such path or method: openapi.json lists those it has";
    Failure(error(ErrorKind::NotFound, text))
}

async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// The OpenAPI document of the routes; `crates/api/openapi.json` is a copy of it.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Strake",
        description = "Management of a Strake daemon, over HTTP on its Unix socket. Sizes are JSON numbers, exact up to 2^53 bytes.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        status,
        list_drives,
        show_drive,
        clean_drive,
        fault_drive,
        list_arrays,
        create_array,
        scan_arrays,
        import_array,
        show_array,
        set_array,
        destroy_array,
        start_array,
        stop_array,
        fail_member,
        remove_member,
        replace_member,
        scrub_array,
        torn_blocks,
        accept_suspect,
        list_exports,
        create_export,
        show_export,
        remove_export
    ),
    components(schemas(api::ErrorBody))
)]
pub struct Document;

/// The daemon itself.
#[utoipa::path(get, path = "/v1/status", tag = "daemon",
    responses((status = 200, body = api::DaemonStatus), (status = "default", body = api::ErrorBody)))]
async fn status(manager: Shared) -> Answer<api::DaemonStatus> {
    blocking(manager, |manager| Ok(manager.status())).await
}

/// Drives that could be members, and those that arrays of this host use.
#[utoipa::path(get, path = "/v1/drives", tag = "drive",
    responses((status = 200, body = api::DriveList), (status = "default", body = api::ErrorBody)))]
async fn list_drives(manager: Shared) -> Answer<api::DriveList> {
    blocking(manager, |manager| Ok(manager.list_drives())).await
}

/// Everything about one drive.
#[utoipa::path(get, path = "/v1/drives/show", tag = "drive", params(api::DriveQuery),
    responses((status = 200, body = api::DriveDetail), (status = "default", body = api::ErrorBody)))]
async fn show_drive(
    manager: Shared,
    Query(query): Query<api::DriveQuery>,
) -> Answer<api::DriveDetail> {
    blocking(manager, move |manager| manager.show_drive(&query.drive)).await
}

/// Erases Strake's metadata on a drive that no running array uses.
#[utoipa::path(post, path = "/v1/drives/clean", tag = "drive", request_body = api::CleanDrive,
    responses((status = 200, body = api::Outcome), (status = "default", body = api::ErrorBody)))]
async fn clean_drive(
    manager: Shared,
    Body(request): Body<api::CleanDrive>,
) -> Answer<api::Outcome> {
    blocking(manager, move |manager| manager.clean_drive(&request)).await
}

/// Makes a member drive opened as `faulty:` misbehave, or heals it.
#[utoipa::path(post, path = "/v1/drives/fault", tag = "drive", request_body = api::FaultDrive,
    responses((status = 200, body = api::Outcome), (status = "default", body = api::ErrorBody)))]
async fn fault_drive(
    manager: Shared,
    Body(request): Body<api::FaultDrive>,
) -> Answer<api::Outcome> {
    blocking(manager, move |manager| manager.fault_drive(&request)).await
}

/// Every array that this host knows.
#[utoipa::path(get, path = "/v1/arrays", tag = "array",
    responses((status = 200, body = api::ArrayList), (status = "default", body = api::ErrorBody)))]
async fn list_arrays(manager: Shared) -> Answer<api::ArrayList> {
    blocking(manager, |manager| Ok(manager.list_arrays())).await
}

/// Makes an array and starts it.
#[utoipa::path(post, path = "/v1/arrays", tag = "array", request_body = api::CreateArray,
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn create_array(
    manager: Shared,
    Body(request): Body<api::CreateArray>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| manager.create_array(&request)).await
}

/// Looks for arrays on drives.
#[utoipa::path(post, path = "/v1/arrays/scan", tag = "array", request_body = api::ScanRequest,
    responses((status = 200, body = api::ScanResult), (status = "default", body = api::ErrorBody)))]
async fn scan_arrays(
    manager: Shared,
    Body(request): Body<api::ScanRequest>,
) -> Answer<api::ScanResult> {
    blocking(manager, move |manager| Ok(manager.scan(&request))).await
}

/// Starts an array from what its drives say.
#[utoipa::path(post, path = "/v1/arrays/import", tag = "array", request_body = api::ImportArray,
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn import_array(
    manager: Shared,
    Body(request): Body<api::ImportArray>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| manager.import_array(&request)).await
}

/// Everything about one array; long work on it is watched here.
#[utoipa::path(get, path = "/v1/arrays/{array}", tag = "array",
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayDetail), (status = "default", body = api::ErrorBody)))]
async fn show_array(manager: Shared, Path(array): Path<String>) -> Answer<api::ArrayDetail> {
    blocking(manager, move |manager| manager.show_array(&array)).await
}

/// Changes settings of a running array.
#[utoipa::path(patch, path = "/v1/arrays/{array}", tag = "array", request_body = api::SetArray,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn set_array(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::SetArray>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| manager.set_array(&array, request)).await
}

/// Erases an array; all its data is lost. Refused without `force`.
#[utoipa::path(delete, path = "/v1/arrays/{array}", tag = "array",
    params(("array" = String, Path, description = "Name or UUID"), api::ForceQuery),
    responses((status = 200, body = api::Outcome), (status = "default", body = api::ErrorBody)))]
async fn destroy_array(
    manager: Shared,
    Path(array): Path<String>,
    Query(query): Query<api::ForceQuery>,
) -> Answer<api::Outcome> {
    blocking(manager, move |manager| {
        manager.destroy_array(&array, query.force)
    })
    .await
}

/// Starts a stopped or offline array; its exports return.
#[utoipa::path(post, path = "/v1/arrays/{array}/start", tag = "array", request_body = api::StartArray,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn start_array(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::StartArray>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| manager.start_array(&array, request)).await
}

/// Stops an array cleanly; its exports stay configured.
#[utoipa::path(post, path = "/v1/arrays/{array}/stop", tag = "array", request_body = api::StopArray,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn stop_array(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::StopArray>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| {
        manager.stop_array(&array, request.force)
    })
    .await
}

/// Drops a member.
#[utoipa::path(post, path = "/v1/arrays/{array}/fail", tag = "array", request_body = api::MemberRequest,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn fail_member(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::MemberRequest>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| {
        manager.fail_member(&array, &request)
    })
    .await
}

/// Takes a member out of its place.
#[utoipa::path(post, path = "/v1/arrays/{array}/remove", tag = "array", request_body = api::MemberRequest,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn remove_member(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::MemberRequest>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| {
        manager.remove_member(&array, &request)
    })
    .await
}

/// Puts a drive into a place and starts to rebuild it.
#[utoipa::path(post, path = "/v1/arrays/{array}/replace", tag = "array", request_body = api::ReplaceMember,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn replace_member(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::ReplaceMember>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| {
        manager.replace_member(&array, &request)
    })
    .await
}

/// Starts or ends a scrub.
#[utoipa::path(post, path = "/v1/arrays/{array}/scrub", tag = "array", request_body = api::Scrub,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn scrub_array(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::Scrub>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| manager.scrub(&array, request)).await
}

/// Blocks of a running array that read as errors.
#[utoipa::path(get, path = "/v1/arrays/{array}/torn", tag = "array",
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::TornList), (status = "default", body = api::ErrorBody)))]
async fn torn_blocks(manager: Shared, Path(array): Path<String>) -> Answer<api::TornList> {
    blocking(manager, move |manager| manager.torn(&array)).await
}

/// Serves suspect blocks as they are from now on. Refused without `force`.
#[utoipa::path(post, path = "/v1/arrays/{array}/accept", tag = "array", request_body = api::AcceptSuspect,
    params(("array" = String, Path, description = "Name or UUID")),
    responses((status = 200, body = api::ArrayOutcome), (status = "default", body = api::ErrorBody)))]
async fn accept_suspect(
    manager: Shared,
    Path(array): Path<String>,
    Body(request): Body<api::AcceptSuspect>,
) -> Answer<api::ArrayOutcome> {
    blocking(manager, move |manager| {
        manager.accept_suspect(&array, request)
    })
    .await
}

/// Every export.
#[utoipa::path(get, path = "/v1/exports", tag = "export",
    responses((status = 200, body = api::ExportList), (status = "default", body = api::ErrorBody)))]
async fn list_exports(manager: Shared) -> Answer<api::ExportList> {
    blocking(manager, |manager| Ok(manager.list_exports())).await
}

/// Serves a running array.
#[utoipa::path(post, path = "/v1/exports", tag = "export", request_body = api::CreateExport,
    responses((status = 200, body = api::ExportOutcome), (status = "default", body = api::ErrorBody)))]
async fn create_export(
    manager: Shared,
    Body(request): Body<api::CreateExport>,
) -> Answer<api::ExportOutcome> {
    blocking(manager, move |manager| manager.create_export(&request)).await
}

/// One export.
#[utoipa::path(get, path = "/v1/exports/{export}", tag = "export",
    params(("export" = String, Path, description = "Identity, like nbd1")),
    responses((status = 200, body = api::Export), (status = "default", body = api::ErrorBody)))]
async fn show_export(manager: Shared, Path(export): Path<String>) -> Answer<api::Export> {
    blocking(manager, move |manager| manager.show_export(&export)).await
}

/// Ends an export. Refused while clients use it, unless forced.
#[utoipa::path(delete, path = "/v1/exports/{export}", tag = "export",
    params(("export" = String, Path, description = "Identity, like nbd1"), api::ForceQuery),
    responses((status = 200, body = api::ExportOutcome), (status = "default", body = api::ErrorBody)))]
async fn remove_export(
    manager: Shared,
    Path(export): Path<String>,
    Query(query): Query<api::ForceQuery>,
) -> Answer<api::ExportOutcome> {
    blocking(manager, move |manager| {
        manager.remove_export(&export, query.force)
    })
    .await
}

#[cfg(test)]
mod tests;
