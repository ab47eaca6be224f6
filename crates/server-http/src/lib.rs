//! The HTTP interface: routes, resources and conditional requests.
