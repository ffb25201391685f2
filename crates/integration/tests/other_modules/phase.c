/* A module of stream that has a handler of its own in the TLS phase, as none is known to have. */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_stream.h>

static ngx_int_t
decline(ngx_stream_session_t *s)
{
    return NGX_DECLINED;
}

static ngx_int_t
add_handler(ngx_conf_t *cf)
{
    ngx_stream_core_main_conf_t  *main_conf;
    ngx_stream_handler_pt        *handler;

    main_conf = ngx_stream_conf_get_module_main_conf(cf, ngx_stream_core_module);
    handler = ngx_array_push(&main_conf->phases[NGX_STREAM_SSL_PHASE].handlers);
    if (handler == NULL) {
        return NGX_ERROR;
    }
    *handler = decline;
    return NGX_OK;
}

static ngx_stream_module_t  context = { NULL, add_handler, NULL, NULL, NULL, NULL };

ngx_module_t  ngx_stream_phase_module = {
    NGX_MODULE_V1,
    &context, NULL, NGX_STREAM_MODULE,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &ngx_stream_phase_module, NULL };

char  *ngx_module_names[] = { "ngx_stream_phase_module", NULL };
