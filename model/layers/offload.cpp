#include "model/layers/offload.hpp"

namespace mgplan::model {

void inputs_to_host(const RankContext& context, ModuleInputs inputs) {
    if (context.offloaded.empty()) return;
    for (const auto& [module, tensor] : inputs) {
        if (context.offloaded.contains(module) && tensor.defined() && !tensor.storage()->on_host()) tensor.storage()->to_host();
    }
}

void inputs_from_host(const RankContext& context, ModuleInputs inputs) {
    if (context.offloaded.empty()) return;
    for (const auto& [module, tensor] : inputs) {
        if (tensor.defined() && tensor.storage()->on_host()) tensor.storage()->from_host();
    }
}

}  // namespace mgplan::model
