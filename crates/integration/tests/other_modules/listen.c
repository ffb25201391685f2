/* A module that puts a handler of its own in front of that of all listening sockets. */

#include <ngx_config.h>
#include <ngx_core.h>

static ngx_connection_handler_pt  next;

static void
accept_connection(ngx_connection_t *c)
{
    next(c);
}

static ngx_int_t
replace_handlers(ngx_cycle_t *cycle)
{
    ngx_uint_t        i;
    ngx_listening_t  *ls;

    ls = cycle->listening.elts;
    for (i = 0; i < cycle->listening.nelts; i++) {
        next = ls[i].handler;
        ls[i].handler = accept_connection;
    }
    return NGX_OK;
}

static ngx_core_module_t  context = { ngx_string("listen"), NULL, NULL };

ngx_module_t  ngx_listen_module = {
    NGX_MODULE_V1,
    &context, NULL, NGX_CORE_MODULE,
    NULL, replace_handlers, NULL, NULL, NULL, NULL, NULL,
    NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &ngx_listen_module, NULL };

char  *ngx_module_names[] = { "ngx_listen_module", NULL };
