// Stands in for runtime/cuda/cudnn_library.cpp: the same library without a card. A handle needs one; what a graph asks of its handle is
// which card it is for, and that the library also takes as a description. So all calls go through but for those about the handle. Stands
// in for check.cpp too, which would need CUDA's libraries.

#include "tests/runtime/cuda/cudnn/deviceless_cudnn.hpp"

#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cudnn_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

cudnnBackendDescriptor_t card = nullptr;  // of the whole process

const LibraryFunctions<CudnnFunctions>& loaded() {
    static const LibraryFunctions<CudnnFunctions> opened("cuDNN", MGPLAN_LIBRARY_FILE("cudnn", CUDNN_MAJOR));
    return opened;
}

cudnnStatus_t CUDNNWINAPI create(cudnnHandle_t* handle) {
    static int stands_for_a_handle = 0;
    *handle = reinterpret_cast<cudnnHandle_t>(&stands_for_a_handle);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI destroy(cudnnHandle_t /*handle*/) {
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI set_stream(cudnnHandle_t /*handle*/, cudaStream_t /*stream*/) {
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
    const auto set = loaded().functions().cudnnBackendSetAttribute;
    const auto describe_card = [&](cudnnBackendAttributeName_t as) { return set(descriptor, as, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card); };
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return describe_card(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    const cudnnStatus_t status = set(descriptor, name, type, count, values);
    if (status != CUDNN_STATUS_SUCCESS || name != CUDNN_ATTR_ENGINEHEUR_MODE) return status;
    return describe_card(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
}

}  // namespace

int rank_of_this_thread() {
    return 0;
}

const std::string& cudnn_unavailable() {
    return loaded().unavailable();
}

const CudnnFunctions& cudnn() {
    static const CudnnFunctions functions = [] {
        CudnnFunctions some = loaded().functions();
        some.cudnnCreate = create;
        some.cudnnDestroy = destroy;
        some.cudnnSetStream = set_stream;
        some.cudnnBackendSetAttribute = set_attribute;
        return some;
    }();
    return functions;
}

void stand_before_card(const std::string& properties) {
    const CudnnFunctions& real = loaded().functions();
    const auto expect = [&](cudnnStatus_t status, const char* what) {
        if (status != CUDNN_STATUS_SUCCESS) throw RunError(std::string(what) + ": " + real.cudnnGetErrorString(status));
    };
    if (card != nullptr) real.cudnnBackendDestroyDescriptor(card);
    expect(real.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &card), "a description of a card");
    expect(real.cudnnBackendSetAttribute(card, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(properties),
                                         properties.data()),
           "its properties");
    expect(real.cudnnBackendFinalize(card), "the card that they describe");
}

}  // namespace mgplan::runtime::cuda
