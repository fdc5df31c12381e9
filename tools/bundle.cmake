# The install component "bundle", which tools/bundle installs: one folder that may be moved, and runs where none of the
# libraries that Stepnet is built with are installed. They come along, except those that belong to the system or to its
# driver: glibc and the loader, which the machine must have in this version or a later one, and libcuda. What is loaded
# later (cuBLASLt, cuDNN, NVRTC) is nobody's dependency here.
#
# protobuf comes as a shared library: the command, plugins and libstepnet.so must share one registry of messages.
#
# The path to them is an RPATH and no RUNPATH, which is not looked at for what libraries need in turn: Debian's oneDNN
# needs OpenCL's loader, and says nothing of where it is.
set(bundle COMPONENT bundle EXCLUDE_FROM_ALL)
set(bundle_link_options LINKER:--disable-new-dtags)
target_link_options(stepnet PRIVATE ${bundle_link_options})
target_link_options(stepnet_command PRIVATE ${bundle_link_options})
install(TARGETS stepnet RUNTIME_DEPENDENCY_SET stepnet_bundle LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${bundle}
                                                                      NAMELINK_SKIP)
install(TARGETS stepnet_command RUNTIME_DEPENDENCY_SET stepnet_bundle RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
                                                                              ${bundle})
if(TARGET stepnet_mpi)  # MPI itself is the machine's own: its parts, and mpirun, must be of one version
  install(TARGETS stepnet_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${bundle})
endif()
install(RUNTIME_DEPENDENCY_SET stepnet_bundle
        PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(anl|c|dl|m|mvec|nsl|pthread|resolv|rt|thread_db|util)\\.so" "^libcuda\\.so"
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${bundle})

# These need no library that the two above do not.
foreach(program stepnet_tests stepnet_gpu_tests stepnet_bench stepnet_tape_bench stepnet_gpu_bench)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    target_link_options(${program} PRIVATE ${bundle_link_options})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${bundle} OPTIONAL)
  endif()
endforeach()
if(TARGET scale_by)
  set_target_properties(scale_by PROPERTIES INSTALL_RPATH "$ORIGIN")
  target_link_options(scale_by PRIVATE ${bundle_link_options})
  install(TARGETS scale_by faults_shim LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${bundle} OPTIONAL)
  install(PROGRAMS tools/bundled_tests DESTINATION . ${bundle} RENAME run_tests)
endif()

# Examples, scripts, and the sources that tests read, at their paths in the source tree.
install(DIRECTORY core docs gpu operators proto recurrent tests tools DESTINATION . ${bundle} USE_SOURCE_PERMISSIONS
        PATTERN "__pycache__" EXCLUDE)
install(FILES CHANGELOG.md CMakePresets.json CONTRIBUTING.md LICENSE README.md DESTINATION . ${bundle})
