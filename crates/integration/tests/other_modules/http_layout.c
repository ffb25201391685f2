/* A module that changes the member by which the layout of a server's TLS configuration is known. */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

static ngx_int_t
change_log(ngx_conf_t *cf)
{
    ngx_uint_t                   i;
    ngx_http_ssl_srv_conf_t     *conf;
    ngx_http_core_srv_conf_t   **servers;
    ngx_http_core_main_conf_t   *main_conf;

    main_conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    servers = main_conf->servers.elts;
    for (i = 0; i < main_conf->servers.nelts; i++) {
        conf = servers[i]->ctx->srv_conf[ngx_http_ssl_module.ctx_index];
        conf->ssl.log = &cf->cycle->new_log;
    }
    return NGX_OK;
}

static ngx_http_module_t  context = {
    NULL, change_log, NULL, NULL, NULL, NULL, NULL, NULL
};

ngx_module_t  ngx_http_layout_module = {
    NGX_MODULE_V1,
    &context, NULL, NGX_HTTP_MODULE,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &ngx_http_layout_module, NULL };

char  *ngx_module_names[] = { "ngx_http_layout_module", NULL };
