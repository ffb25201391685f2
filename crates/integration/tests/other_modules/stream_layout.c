/* A module that changes the member by which the layout of the TLS configuration of a server of
   stream is known. Debian's stream is a module that can be loaded: its symbols are looked up late. Later versions of nginx have
   renamed STREAM_SSL_CONF. */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_stream.h>

static ngx_int_t
change_log(ngx_conf_t *cf)
{
    ngx_uint_t                     i;
    ngx_stream_core_srv_conf_t   **servers;
    ngx_stream_core_main_conf_t   *main_conf;
    STREAM_SSL_CONF               *conf;

    main_conf = ngx_stream_conf_get_module_main_conf(cf, ngx_stream_core_module);
    servers = main_conf->servers.elts;
    for (i = 0; i < main_conf->servers.nelts; i++) {
        conf = servers[i]->ctx->srv_conf[ngx_stream_ssl_module.ctx_index];
        conf->ssl.log = &cf->cycle->new_log;
    }
    return NGX_OK;
}

static ngx_stream_module_t  context = { NULL, change_log, NULL, NULL, NULL, NULL };

ngx_module_t  ngx_stream_layout_module = {
    NGX_MODULE_V1,
    &context, NULL, NGX_STREAM_MODULE,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &ngx_stream_layout_module, NULL };

char  *ngx_module_names[] = { "ngx_stream_layout_module", NULL };
