//! What is wrong with a name, where the rules look for it.

pub(crate) use crate::names::{
    label_key_problem, label_problem, label_value_problem, port_name_problem, subdomain_problem,
};
