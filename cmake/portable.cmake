# MGPLAN_PORTABLE: what is built can be carried to another machine. The target `portable` builds the command, the programs
# of tests/gpu/run and the CUDA module, and puts the shared libraries they need beside them, except for the C and C++
# runtimes (that machine's must not be older) and CUDA's (tests/gpu/run finds them). `portable_gpu` copies what
# tests/gpu/run needs, and no more, to gpu/bin and gpu/lib of the build folder.
option(MGPLAN_PORTABLE "Look for libraries beside the programs" OFF)
if(MGPLAN_PORTABLE)
  set(CMAKE_BUILD_RPATH "$ORIGIN;$ORIGIN/../lib")
  add_link_options(-s)
endif()

function(mgplan_add_portable_target)
  if(NOT MGPLAN_PORTABLE)
    return()
  endif()
  set(programs "")
  foreach(program IN ITEMS mgplan gpu_test gpu_bench gpu_nccl)
    if(TARGET ${program})
      list(APPEND programs ${program})
    endif()
  endforeach()
  set(files "")
  foreach(program IN LISTS programs)
    list(APPEND files $<TARGET_FILE:${program}>)
  endforeach()
  set(modules "")
  if(TARGET mgplan_cuda)
    set(modules $<TARGET_FILE:mgplan_cuda>)
    list(APPEND programs mgplan_cuda)
  endif()
  add_custom_target(portable
    COMMAND ${CMAKE_COMMAND} "-DPROGRAMS=${files}" "-DMODULES=${modules}" -DFOLDER=${PROJECT_BINARY_DIR}/lib
      -P ${PROJECT_SOURCE_DIR}/cmake/bundle_libraries.cmake
    DEPENDS ${programs}
    VERBATIM)
  if(TARGET gpu_test AND TARGET mgplan_cuda)
    add_custom_target(portable_gpu
      COMMAND ${CMAKE_COMMAND} "-DPROGRAMS=$<TARGET_FILE:gpu_test>;$<TARGET_FILE:gpu_bench>;$<TARGET_FILE:gpu_nccl>"
        "-DMODULES=$<TARGET_FILE:mgplan_cuda>"
        -DFOLDER=${PROJECT_BINARY_DIR}/gpu/lib -DPROGRAM_FOLDER=${PROJECT_BINARY_DIR}/gpu/bin
        -P ${PROJECT_SOURCE_DIR}/cmake/bundle_libraries.cmake
      DEPENDS gpu_test gpu_bench gpu_nccl mgplan_cuda
      VERBATIM)
  endif()
endfunction()
