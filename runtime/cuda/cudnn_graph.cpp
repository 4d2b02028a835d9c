#include "runtime/cuda/cudnn_graph.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cudnn_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

std::string last_words(cudnnStatus_t status) {
    std::array<char, 1024> words{};
    cudnn().cudnnGetLastErrorString(words.data(), words.size());
    return fmt::format("{} {}", cudnn().cudnnGetErrorString(status), words.data());
}

template <class Value>
void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value) {
    MGPLAN_CUDNN(cudnn().cudnnBackendSetAttribute(descriptor, name, type, 1, &value));
}

void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
    MGPLAN_CUDNN(cudnn().cudnnBackendSetAttribute(descriptor, name, CUDNN_TYPE_INT64, std::ssize(values), values.data()));
}

void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value);
}

}  // namespace

CudnnError::CudnnError(int rank, const std::string& failure)
    : RunError(fmt::format("rank {}: {}", rank, failure)), failure_(std::make_shared<const std::string>(failure)) {}

void throw_cudnn_error(cudnnStatus_t status, const char* call, const char* file, int line) {
    const std::string_view place(file);
    const auto at = place.rfind("runtime/");
    throw CudnnError(rank_of_this_thread(), fmt::format("{} failed with {} at {}:{}", call, last_words(status),
                                                        at == std::string_view::npos ? place : place.substr(at), line));
}

Dimensions dense(const Dimensions& sizes) {
    return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

CudnnGraph::~CudnnGraph() {
    forget_addresses();
    for (auto descriptor = all_.rbegin(); descriptor != all_.rend(); ++descriptor) cudnn().cudnnBackendDestroyDescriptor(*descriptor);
}

cudnnBackendDescriptor_t CudnnGraph::make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    all_.reserve(all_.size() + 1);
    MGPLAN_CUDNN(cudnn().cudnnBackendCreateDescriptor(type, &descriptor));
    all_.push_back(descriptor);
    return descriptor;
}

GraphTensor CudnnGraph::tensor(const Dimensions& sizes, const Dimensions& strides, cudnnDataType_t type, bool is_virtual, bool by_value) {
    GraphTensor made{make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), ++ids_, sizes, strides};
    const std::int64_t alignment = by_value ? 4 : 16;
    set(made.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    set(made.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(sizes));
    set(made.descriptor, CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(strides));
    set(made.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, made.id);
    set(made.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
    set(made.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    set(made.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(made.descriptor));
    return made;
}

GraphTensor CudnnGraph::stored(const Dimensions& sizes, const Dimensions& strides, cudnnDataType_t type) {
    return tensor(sizes, strides, type, false, false);
}

GraphTensor CudnnGraph::scalar() {
    return tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true);
}

GraphTensor CudnnGraph::inner(const Dimensions& sizes, cudnnDataType_t type) {
    return inner(sizes, dense(sizes), type);
}

GraphTensor CudnnGraph::inner(const Dimensions& sizes, const Dimensions& strides, cudnnDataType_t type) {
    return tensor(sizes, strides, type, true, false);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, std::int64_t axis, const GraphTensor& x,
                           const GraphTensor* b, const GraphTensor* choice, const GraphTensor& y) {
    cudnnBackendDescriptor_t kind = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    set(kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
    if (axis >= 0) set(kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(kind));
    cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
    if (b != nullptr) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
    if (choice != nullptr) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choice->descriptor);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(operation));
    operations_.push_back(operation);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& y) {
    pointwise(mode, CUDNN_DATA_FLOAT, -1, x, nullptr, nullptr, y);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& b, const GraphTensor& y) {
    pointwise(mode, CUDNN_DATA_FLOAT, -1, x, &b, nullptr, y);
}

void CudnnGraph::matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c) {
    cudnnBackendDescriptor_t kind = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(kind));
    cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(operation));
    operations_.push_back(operation);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t reduction, const GraphTensor& x, const GraphTensor& y) {
    cudnnBackendDescriptor_t kind = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, reduction);
    set(kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(kind));
    cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
    set(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor);
    set(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(operation));
    operations_.push_back(operation);
}

void CudnnGraph::reshape(const GraphTensor& x, const GraphTensor& y) {
    cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
    set(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(operation));
    operations_.push_back(operation);
}

GraphTensor CudnnGraph::causal(const GraphTensor& scores, const GraphTensor& hidden) {
    const GraphTensor rows = inner(scores.sizes, CUDNN_DATA_INT32), columns = inner(scores.sizes, CUDNN_DATA_INT32);
    const GraphTensor seen = inner(scores.sizes, CUDNN_DATA_BOOLEAN), masked = inner(scores.sizes);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2, scores, nullptr, nullptr, rows);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3, scores, nullptr, nullptr, columns);
    pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, rows, &columns, nullptr, seen);
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores, &hidden, &seen, masked);
    return masked;
}

bool CudnnGraph::build(std::int64_t most_workspace_bytes, std::string& refusal) {
    cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    MGPLAN_CUDNN(cudnn().cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                  std::ssize(operations_), operations_.data()));
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    if (const auto status = cudnn().cudnnBackendFinalize(graph); status != CUDNN_STATUS_SUCCESS) {
        refusal = last_words(status);
        return false;
    }
    cudnnBackendDescriptor_t heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    if (const auto status = cudnn().cudnnBackendFinalize(heuristics); status != CUDNN_STATUS_SUCCESS) {
        refusal = last_words(status);
        return false;
    }
    std::int64_t count = 0;
    MGPLAN_CUDNN(
        cudnn().cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    std::vector<cudnnBackendDescriptor_t> engines;
    for (std::int64_t i = 0; i < count; ++i) engines.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    MGPLAN_CUDNN(cudnn().cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                                  engines.data()));
    refusal = fmt::format("none of {} engines can be used", count);
    for (std::int64_t i = 0; i < count; ++i) {
        cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engines[static_cast<std::size_t>(i)]);
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
        if (const auto status = cudnn().cudnnBackendFinalize(plan); status != CUDNN_STATUS_SUCCESS) {
            refusal += ": " + last_words(status);
            continue;
        }
        const std::int64_t bytes = take(plan, most_workspace_bytes);
        if (plan_ != nullptr) return true;
        refusal += fmt::format(": one wants {} bytes of workspace and there are {}", bytes, most_workspace_bytes);
    }
    return false;
}

std::int64_t CudnnGraph::take(cudnnBackendDescriptor_t plan, std::int64_t most_workspace_bytes) {
    std::int64_t one = 0, bytes = 0;
    MGPLAN_CUDNN(cudnn().cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one, &bytes));
    if (bytes > most_workspace_bytes) return bytes;
    workspace_bytes_ = bytes;
    plan_ = plan;
    return bytes;
}

std::string CudnnGraph::written() const {
    MGPLAN_ASSERT(plan_ != nullptr, "a plan is written when it is built");
    const auto get = [&](std::int64_t most, std::int64_t& count, char* text) {
        return cudnn().cudnnBackendGetAttribute(plan_, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, most, &count,
                                                text) == CUDNN_STATUS_SUCCESS;
    };
    std::int64_t count = 0;
    if (!get(0, count, nullptr) || count <= 0) return {};
    std::string text(static_cast<std::size_t>(count), '\0');
    return get(count, count, text.data()) ? text : std::string();
}

bool CudnnGraph::read(const std::string& written, std::int64_t most_workspace_bytes) {
    cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const auto set_text = [&] {
        return cudnn().cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(written),
                                                written.data());
    };
    const auto set_handle = [&] {
        return cudnn().cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
    };
    if (set_text() != CUDNN_STATUS_SUCCESS || set_handle() != CUDNN_STATUS_SUCCESS ||
        cudnn().cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS)
        return false;
    static_cast<void>(take(plan, most_workspace_bytes));
    return plan_ != nullptr;
}

void CudnnGraph::run(std::span<const std::int64_t> ids, std::span<void* const> memory, void* workspace) {
    MGPLAN_ASSERT(plan_ != nullptr && ids.size() == memory.size(), "a plan runs with memory for every tensor");
    const bool told =
        addresses_ != nullptr && told_.back() == workspace && std::equal(memory.begin(), memory.end(), told_.begin(), told_.end() - 1);
    if (!told) tell_addresses(ids, memory, workspace);
    MGPLAN_CUDNN(cudnn().cudnnBackendExecute(handle_, plan_, addresses_));
}

void CudnnGraph::tell_addresses(std::span<const std::int64_t> ids, std::span<void* const> memory, void* workspace) {
    forget_addresses();
    told_.assign(memory.begin(), memory.end());
    told_.push_back(workspace);
    struct Pack {
        cudnnBackendDescriptor_t descriptor = nullptr;
        ~Pack() {
            if (descriptor != nullptr) cudnn().cudnnBackendDestroyDescriptor(descriptor);
        }
    } pack;
    MGPLAN_CUDNN(cudnn().cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack.descriptor));
    set(pack.descriptor, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    MGPLAN_CUDNN(cudnn().cudnnBackendSetAttribute(pack.descriptor, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                                  std::ssize(memory), memory.data()));
    set(pack.descriptor, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(pack.descriptor));
    addresses_ = std::exchange(pack.descriptor, nullptr);
}

void CudnnGraph::forget_addresses() {
    if (addresses_ != nullptr) cudnn().cudnnBackendDestroyDescriptor(std::exchange(addresses_, nullptr));
}

}  // namespace mgplan::runtime::cuda
