#include "model/device/memory.hpp"

namespace mgplan::model {

std::string_view to_string(MemoryCategory category) {
    switch (category) {
        case MemoryCategory::parameters:
            return "parameters";
        case MemoryCategory::gradients:
            return "gradients";
        case MemoryCategory::optimizer:
            return "optimizer";
        case MemoryCategory::activations:
            return "activations";
        case MemoryCategory::communication:
            return "communication";
        case MemoryCategory::workspace:
            return "workspace";
    }
    return "";
}

}  // namespace mgplan::model
