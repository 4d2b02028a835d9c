#include "plan/layout/switched_layout.hpp"

#include <memory>
#include <utility>

#include "plan/layout/layout_switches.hpp"

namespace mgplan {

Layout with_all_switches(Layout layout, const ModelSpec& model, const TrainingSpec& training) {
    LayoutSwitches on = layout.switches ? *layout.switches : LayoutSwitches{};
    if (!on.dispatcher && model.moe && layout.engine == Engine::megatron) on.dispatcher = model.moe->dispatcher;
    on.overlap_tp = on.overlap_tp || training.overlap_tp;
    on.overlap_moe = on.overlap_moe || training.overlap_moe;
    on.bf16_gradients = on.bf16_gradients || training.grad_dtype == Dtype::bf16;
    on.bf16_moments = on.bf16_moments || (training.exp_avg_dtype == Dtype::bf16 && training.exp_avg_sq_dtype == Dtype::bf16);
    layout.switches = on == LayoutSwitches{} ? nullptr : std::make_shared<const LayoutSwitches>(on);
    return layout;
}

std::string summary(const Layout& layout, const ModelSpec& model, const TrainingSpec& training) {
    return summary(with_all_switches(layout, model, training));
}

}  // namespace mgplan
