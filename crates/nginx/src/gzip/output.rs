//! Blocks of output that are being sent to the client, as buffers of nginx.

use std::collections::VecDeque;
use std::ptr;

use nginx_sys::{
    ngx_alloc_chain_link, ngx_buf_t, ngx_bufs_t, ngx_chain_get_free_buf, ngx_chain_t,
    ngx_chain_update_chains, ngx_pcalloc, ngx_pool_t,
};

use crate::index;
use crate::nginx::OutOfMemory;

/// The most blocks that are being sent, however short they are: each takes memory beside its bytes.
const MAX_BLOCKS: usize = 64;

/// The output of one response. Blocks are kept until they have been sent.
pub(super) struct Output {
    pool: *mut ngx_pool_t,
    /// The most output that may be unsent, and the usual length of a block, in bytes.
    limit: usize,
    block_bytes: usize,
    /// Buffers to be reused, and buffers that nginx has not sent.
    free: *mut ngx_chain_t,
    busy: *mut ngx_chain_t,
    /// Buffers of blocks that nginx has not been given yet, first to last, and their length in
    /// bytes.
    first: *mut ngx_chain_t,
    last: *mut ngx_chain_t,
    collected: usize,
    /// The blocks that buffers point to until nginx has sent them, in order.
    blocks: VecDeque<(*mut ngx_buf_t, Vec<u8>)>,
}

impl Output {
    /// Makes the output of a request with this pool. As much as `buffers` hold may be unsent.
    pub(super) fn new(pool: *mut ngx_pool_t, buffers: ngx_bufs_t) -> Self {
        Self {
            pool,
            limit: buffers.num.unsigned_abs().saturating_mul(buffers.size),
            block_bytes: buffers.size,
            free: ptr::null_mut(),
            busy: ptr::null_mut(),
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            collected: 0,
            blocks: VecDeque::new(),
        }
    }

    /// Returns true if nginx has buffers that it has not sent.
    pub(super) fn is_busy(&self) -> bool {
        !self.busy.is_null()
    }

    /// Returns true if another block may be added.
    pub(super) fn has_room(&self) -> bool {
        let sum = self.collected + self.unsent();
        sum == 0 || (sum + self.block_bytes <= self.limit && self.blocks.len() < MAX_BLOCKS)
    }

    fn unsent(&self) -> usize {
        let unsent = |buffer: *mut ngx_buf_t| {
            // SAFETY: buffers live as long as the pool.
            unsafe { (*buffer).last.addr() - (*buffer).pos.addr() }
        };
        links(self.busy).map(unsent).sum()
    }

    /// Adds a block.
    pub(super) fn add(&mut self, block: Vec<u8>) -> Result<(), OutOfMemory> {
        // SAFETY: the request's pool, and a chain that only this has.
        let link = unsafe { ngx_chain_get_free_buf(self.pool, &raw mut self.free) };
        if link.is_null() {
            return Err(OutOfMemory);
        }
        // SAFETY: a link with a buffer that no other code refers to. nginx itself starts with all
        // zero bits.
        let buffer = unsafe {
            (*link).buf.write(std::mem::zeroed());
            &mut *(*link).buf
        };
        let range = block.as_ptr_range();
        buffer.tag = index::gzip_tag();
        buffer.start = range.start.cast_mut();
        buffer.end = range.end.cast_mut();
        buffer.pos = buffer.start;
        buffer.last = buffer.end;
        buffer.set_temporary(1);
        self.collected += block.len();
        self.blocks.push_back((ptr::from_mut(buffer), block));
        self.append(link);
        Ok(())
    }

    /// Marks the end of the response.
    pub(super) fn mark_last(&mut self) -> Result<(), OutOfMemory> {
        self.last_buffer()?.set_last_buf(1);
        Ok(())
    }

    /// Tells nginx to send everything so far.
    pub(super) fn mark_flush(&mut self) -> Result<(), OutOfMemory> {
        self.last_buffer()?.set_flush(1);
        Ok(())
    }

    /// The buffer that was added last, or a new one without content.
    fn last_buffer<'a>(&mut self) -> Result<&'a mut ngx_buf_t, OutOfMemory> {
        if self.last.is_null() {
            // Without our tag, and never used again: nginx may keep a buffer without content behind
            // content that it cannot send yet, while it counts as sent. SAFETY: the request's pool.
            // A buffer of zero bits is what nginx itself starts with.
            unsafe {
                let link = ngx_alloc_chain_link(self.pool);
                let buffer = ngx_pcalloc(self.pool, size_of::<ngx_buf_t>()).cast::<ngx_buf_t>();
                if link.is_null() || buffer.is_null() {
                    return Err(OutOfMemory);
                }
                (*link).buf = buffer;
                self.append(link);
            }
        }
        // SAFETY: a link and its buffer live as long as the pool.
        Ok(unsafe { &mut *(*self.last).buf })
    }

    fn append(&mut self, link: *mut ngx_chain_t) {
        // SAFETY: links live as long as the pool; only this response refers to this one.
        unsafe {
            (*link).next = ptr::null_mut();
            if self.last.is_null() {
                self.first = link;
            } else {
                (*self.last).next = link;
            }
        }
        self.last = link;
    }

    /// Takes the buffers that were added since the last call, to be passed to nginx. Null if there
    /// are none.
    pub(super) fn take(&mut self) -> *mut ngx_chain_t {
        self.last = ptr::null_mut();
        self.collected = 0;
        std::mem::replace(&mut self.first, ptr::null_mut())
    }

    /// Drops the blocks that nginx has sent, after `chain` was passed to it.
    pub(super) fn sent(&mut self, mut chain: *mut ngx_chain_t) {
        // SAFETY: the chains are this response's, and the buffers of `chain` have been passed to
        // the next filter.
        unsafe {
            ngx_chain_update_chains(
                self.pool,
                &raw mut self.free,
                &raw mut self.busy,
                &raw mut chain,
                index::gzip_tag(),
            );
        }
        // SAFETY: buffers live as long as the pool.
        let is_ours = |buffer: &*mut ngx_buf_t| unsafe { (**buffer).tag == index::gzip_tag() };
        let first = links(self.busy).find(is_ours);
        while self
            .blocks
            .front()
            .is_some_and(|(buffer, _)| Some(*buffer) != first)
        {
            self.blocks.pop_front();
        }
    }

    /// Returns a link of a chain to the pool, and the next link to the caller.
    pub(super) fn free_link(&self, link: *mut ngx_chain_t) -> *mut ngx_chain_t {
        // SAFETY: links are kept by the pool to be used again, as `ngx_free_chain` does.
        unsafe {
            let next = (*link).next;
            (*link).next = (*self.pool).chain;
            (*self.pool).chain = link;
            next
        }
    }
}

fn links(mut chain: *mut ngx_chain_t) -> impl Iterator<Item = *mut ngx_buf_t> {
    std::iter::from_fn(move || {
        // SAFETY: links are joined until null, and live as long as their pool.
        let link = unsafe { chain.as_ref() }?;
        chain = link.next;
        Some(link.buf)
    })
}
