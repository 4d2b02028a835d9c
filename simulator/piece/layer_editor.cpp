#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator {
namespace {

/// Compares sizes and last letters first: many names have equal beginnings.
bool is_named(const LayerEditor::Tensor& tensor, std::string_view name) {
    return tensor.name.size() == name.size() && !name.empty() && tensor.name.back() == name.back() && tensor.name == name;
}

}  // namespace

void LayerEditor::spread(PieceTrace& trace) {
    for (Tensor& tensor : trace.tensors) {
        tensor.taken *= kRoom;
        if (tensor.returned >= 0) tensor.returned *= kRoom;
    }
    // A range begins before the room in front of its first time.
    for (PieceRange& range : trace.pieces) {
        range.begin = range.begin * kRoom - kRoom / 2;
        range.end = range.end * kRoom - kRoom / 2;
    }
}

LayerEditor::Tensor* LayerEditor::find(TraceRange where, std::string_view name, int which) {
    for (Tensor& tensor : trace_.tensors) {
        if (tensor.bytes > 0 && where.contains(tensor.taken) && is_named(tensor, name) && which-- == 0) return &tensor;
    }
    return nullptr;
}

void LayerEditor::drop_all(TraceRange where, std::string_view name) {
    for (Tensor& tensor : trace_.tensors) {
        if (where.contains(tensor.taken) && is_named(tensor, name)) drop(tensor);
    }
}

LayerEditor::Tensor* LayerEditor::alive(std::int64_t when, std::int64_t bytes, std::string_view name) {
    Tensor* latest = nullptr;
    for (Tensor& tensor : trace_.tensors) {
        const bool lives = tensor.taken <= when && (tensor.returned < 0 || tensor.returned > when);
        if (!lives || tensor.bytes != bytes || (!name.empty() && tensor.name != name)) continue;
        if (latest == nullptr || tensor.taken > latest->taken) latest = &tensor;
    }
    return latest;
}

void LayerEditor::add(std::string_view name, model::MemoryCategory category, std::int64_t bytes, std::int64_t taken,
                      std::int64_t returned) {
    if (bytes > 0) trace_.tensors.push_back({name, category, bytes, taken, returned});
}

}  // namespace mgplan::simulator
