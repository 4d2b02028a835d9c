#include "plan/layout/layout_request.hpp"

namespace mgplan {

LayoutRequest request_of(const Layout& layout) {
    LayoutRequest request;
    request.tp = layout.sizes.tp;
    request.cp = layout.sizes.cp;
    request.ep = layout.sizes.ep;
    request.etp = layout.sizes.etp;
    request.pp = layout.sizes.pp;
    request.vpp = layout.vpp;
    if (layout.vpp > 1) request.group_size = layout.group_size;
    request.schedule = layout.schedule;
    request.order = layout.sizes.order;
    request.micro_batch = layout.micro_batch;
    request.sequence_parallel = layout.sequence_parallel;
    request.cp_comm_type = layout.cp_comm_type;
    request.recompute = layout.recompute;
    if (layout.recompute == Recompute::selective) request.recompute_modules = layout.recompute_modules;
    if (layout.recompute_method) request.recompute_method = *layout.recompute_method;
    if (layout.recompute == Recompute::selective) request.mhc_recompute_layers = layout.recompute_num_layers;
    if (layout.recompute == Recompute::full) request.recompute_num_layers = layout.recompute_num_layers;
    request.cuda_graphs = layout.cuda_graphs;
    request.engine = layout.engine;
    request.switches = layout.switches;
    if (layout.split) request.split = layout.split->request();
    return request;
}

}  // namespace mgplan
