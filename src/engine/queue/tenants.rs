//! Who is here, by tenant.

use std::sync::Arc;

use super::{Line, Queue};

#[derive(Debug, Default)]
pub(super) struct Tenant {
    /// By own class.
    pub(super) lines: [Line; 3],
    pub(super) waiting: u32,
    /// Waiters, and holders of uncollected slots.
    pub(super) members: u32,
}

/// So many tenants are kept with nobody here, or as many as have somebody: most come back soon. They fit in the chunk of
/// memory that the tenants take anyway.
pub(super) const ABSENT_TENANTS: usize = 16;

/// Calls that name no tenant share one line per class, which is always there.
pub(super) const ANONYMOUS: u32 = 0;

impl Queue {
    pub(crate) fn waiting_of_tenant(&self, name: Option<&Arc<str>>) -> u32 {
        let tenant = match name {
            None => Some(ANONYMOUS),
            Some(name) => self.by_name.get(name).copied(),
        };
        tenant.map_or(0, |tenant| self.tenants[tenant].waiting)
    }

    /// One more is here of this tenant.
    #[inline]
    pub(super) fn join_tenant(&mut self, name: Option<Arc<str>>) -> u32 {
        let tenant = match name {
            None => ANONYMOUS,
            Some(name) => match self.by_name.get(&name) {
                Some(&tenant) => {
                    self.absent -= usize::from(self.tenants[tenant].members == 0);
                    tenant
                }
                None => self.make_tenant(name),
            },
        };
        self.tenants[tenant].members += 1;
        tenant
    }

    #[cold]
    fn make_tenant(&mut self, name: Arc<str>) -> u32 {
        let tenant = self.tenants.insert(Tenant::default());
        self.by_name.insert(name, tenant);
        tenant
    }

    #[inline]
    pub(super) fn leave_tenant(&mut self, tenant: u32) {
        let here = &mut self.tenants[tenant].members;
        *here -= 1;
        if *here == 0 && tenant != ANONYMOUS {
            self.absent += 1;
            if self.absent > ABSENT_TENANTS && self.absent > self.by_name.len() / 2 {
                self.forget_absent();
            }
        }
    }

    #[cold]
    fn forget_absent(&mut self) {
        let Self { tenants, by_name, .. } = self;
        by_name.retain(|_, tenant| {
            let is_here = tenants[*tenant].members > 0;
            if !is_here {
                tenants.remove(*tenant);
            }
            is_here
        });
        self.absent = 0;
        // A map does not shrink by itself, and one live entry would pin the room of the most there ever were.
        if by_name.capacity() > 64 + 8 * by_name.len() {
            by_name.shrink_to(2 * by_name.len());
        }
    }
}
